"""Finds a model's directory: a local one, or a snapshot downloaded from the Hugging Face Hub into its cache."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils.tqdm import disable_progress_bars

from repogen.errors import SourceError, first_line
from repogen.files.paths import is_foreign_in_public
from repogen.source.huggingface.checkpoint import (
    CONFIG,
    LICENSES,
    PICKLED_WEIGHTS,
    PROCESSORS,
    SAFE_WEIGHTS,
    Checkpoint,
    ConfigFile,
    open_checkpoint,
    read_json,
)
from repogen.source.huggingface.own_code import require_own_code
from repogen.spec.sources import is_hub_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.spec.sources import HuggingFaceSource

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = 10.0
_SHARDS = ("model-*.safetensors", "pytorch_model-*.bin")
_REJECTIONS = (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError)
_MAX_REASON_LENGTH = 300


def find_checkpoint(source: HuggingFaceSource, root: Path) -> Checkpoint:
    """Return the checkpoint of a spec entry, downloading it if necessary.

    Args:
        source: Names a directory relative to ``root``, or a model on the Hub.
        root: Directory of the spec.

    Raises:
        SourceError: There is no such model, the Hub cannot be reached, or ``open_checkpoint`` rejects the directory.
    """
    local = root / source.model
    if local.is_dir():
        checkpoint = open_checkpoint(local, source.model, trusted=source.trust_remote_code, local=True)
        require_own_code(checkpoint, root)
        if is_hub_id(source.model) and is_foreign_in_public(local, root):
            raise SourceError(
                f"another user created the directory {source.model!r}, which would be used instead of the model on the "
                "Hugging Face Hub",
                f"if you trust the directory, write ./{source.model}; if not, use a directory for the spec in which "
                "other users cannot create files",
                code="working-directory.foreign",
            )
        return checkpoint
    if not is_hub_id(source.model):
        raise _not_found(f"directory not found: {source.model!r}", "paths are relative to the spec")
    if constants.HF_HUB_OFFLINE:
        request = _HubRequest(source, root, source.revision, offline=True)
    else:
        request = _resolve_revision(source, root)
    snapshot = _fetch(request)
    notes: tuple[str, ...] = ()
    if source.revision is None or not _COMMIT.fullmatch(source.revision):
        pin = f"source.revision: {snapshot.name}"
        notes = (f"{source.model} is not pinned: commit {snapshot.name} was used; pin it with {pin}",)
    if request.unreachable is not None:
        reason = type(request.unreachable).__name__
        notes = (*notes, f"the Hugging Face Hub could not be reached ({reason}): the local cache was used")
    checkpoint = open_checkpoint(snapshot, source.model, trusted=source.trust_remote_code, local=False, notes=notes)
    require_own_code(checkpoint, root)
    return checkpoint


@contextmanager
def hub_offline() -> Iterator[None]:
    """Prevent downloads: a configuration can name other models on the Hub, such as a backbone.

    transformers would send the user's token to the Hub, and use the configuration of a model that is not pinned.
    """
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@dataclass(frozen=True)
class _HubRequest:
    """What to download from the Hub.

    Attributes:
        source: The model.
        root: Directory of the spec, for messages.
        revision: The commit if the Hub resolved it, else the revision in the spec.
        unreachable: Why the Hub cannot be reached; None when it can, or when no attempt was made.
        offline: Whether HF_HUB_OFFLINE is set.
    """

    source: HuggingFaceSource
    root: Path
    revision: str | None
    unreachable: Exception | None = None
    offline: bool = False


def _resolve_revision(source: HuggingFaceSource, root: Path) -> _HubRequest:
    """Resolve a revision to a commit, with a timeout: the client's download requests have none."""
    try:
        info = HfApi().model_info(source.model, revision=source.revision, timeout=_TIMEOUT)
    except _REJECTIONS as error:
        raise _download_error(_HubRequest(source, root, None, error), error) from error
    except Exception as error:  # noqa: BLE001 - the client's HTTP errors have no stable base class
        return _HubRequest(source, root, source.revision, error)
    return _HubRequest(source, root, info.sha or source.revision)


def _fetch(request: _HubRequest) -> Path:
    """Download only the files that are needed: weights of other frameworks can double the size."""
    snapshot = _download(request, (*PROCESSORS, *LICENSES, *SAFE_WEIGHTS, _SHARDS[0]))
    if any((snapshot / name).is_file() for name in SAFE_WEIGHTS) or not (snapshot / CONFIG).is_file():
        return snapshot
    if read_json(snapshot / CONFIG, ConfigFile).has_remote_code and not request.source.trust_remote_code:
        return snapshot  # open_checkpoint will reject it
    return _download(request, (*PICKLED_WEIGHTS, _SHARDS[1]))


def _download(request: _HubRequest, patterns: tuple[str, ...]) -> Path:
    disable_progress_bars()
    code = ("*.py",) if request.source.trust_remote_code else ()
    try:
        snapshot = snapshot_download(
            request.source.model,
            revision=request.revision,
            allow_patterns=[*patterns, *code],
            ignore_patterns=["*/*"],
            local_files_only=request.offline or request.unreachable is not None,
        )
    except Exception as error:  # the client's own errors, those of its HTTP library, OSError and ValueError
        raise _download_error(request, request.unreachable or error) from error
    return Path(snapshot)


def _download_error(request: _HubRequest, error: Exception) -> SourceError:
    source = request.source
    kind = type(error).__name__
    model = source.model if source.revision is None else f"{source.model} at {source.revision}"
    if request.offline:
        message = f"{model} is not in the Hugging Face cache, and HF_HUB_OFFLINE prevents a download"
        hint = f"download it on a machine with network access: hf download {source.model}, and share HF_HOME"
    elif isinstance(error, _REJECTIONS):
        message = f"the Hugging Face Hub has no accessible model {model} ({kind})"
        hint = "correct the name or the revision; a private or gated model requires a login: hf auth login"
    else:
        reason = first_line(error)[:_MAX_REASON_LENGTH]
        message = f"{model} could not be downloaded from the Hub and is not in its cache: {kind}: {reason}"
        hint = "check the network and HF_ENDPOINT, or specify a directory that save_pretrained wrote"
    if "/" in source.model and (request.root / source.model).parent.is_dir():
        message = f"directory not found: {source.model!r}; {message}"
    return _not_found(message, hint, str(error))


def _not_found(message: str, hint: str, details: str = "") -> SourceError:
    return SourceError(message, hint, code="source.hf-files", details=details)
