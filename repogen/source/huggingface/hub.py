"""A model's directory: beside the spec, or fetched from the hub into its cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils.tqdm import disable_progress_bars

from repogen.errors import SourceError
from repogen.source.huggingface.files import (
    CONFIG,
    LICENSES,
    PICKLED_WEIGHTS,
    PROCESSORS,
    SAFE_WEIGHTS,
    Checkpoint,
    has_remote_code,
    look_through,
    read_json,
)

if TYPE_CHECKING:
    from repogen.spec.sources import HuggingFaceSource

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = 10.0
_SHARDS = ("model-*.safetensors", "pytorch_model-*.bin")


def find_checkpoint(source: HuggingFaceSource, root: Path) -> Checkpoint:
    """Return the directory that a spec entry means.

    Args:
        source: Names a directory relative to ``root``, or a model of the hub.
        root: Directory of the spec.

    Raises:
        SourceError: There is none, the hub cannot be reached, or it is not usable; see ``look_through``.
    """
    local = root / source.model
    if local.is_dir():
        return look_through(local, source.model, trusted=source.trust_remote_code, local=True)
    if not _HUB_ID.fullmatch(source.model) or source.model.startswith((".", "/", "~")):
        raise _missing(f"there is no directory {source.model!r}", "paths are relative to the spec")
    hub = _Hub(source, root, source.revision, None, offline=True) if constants.HF_HUB_OFFLINE else _ask(source, root)
    snapshot = _fetch(hub)
    pinned = source.revision is not None and _COMMIT.fullmatch(source.revision) is not None
    how = f"source.revision: {snapshot.name} makes it stay"
    notes = () if pinned else (f"{source.model} is not pinned: commit {snapshot.name} was used; {how}",)
    if hub.silence is not None:
        notes = (*notes, f"the hub could not be reached ({type(hub.silence).__name__}): its cache was used")
    return look_through(snapshot, source.model, trusted=source.trust_remote_code, local=False, notes=notes)


@dataclass(frozen=True)
class _Hub:
    """How the hub is asked.

    Attributes:
        source: What for.
        root: Directory of the spec, for messages.
        revision: Which revision; the commit where the hub told it.
        silence: Why it can't be reached; None when it can, or nobody tried.
        offline: Whether nobody may try.
    """

    source: HuggingFaceSource
    root: Path
    revision: str | None
    silence: Exception | None
    offline: bool


def _ask(source: HuggingFaceSource, root: Path) -> _Hub:
    """Ask the hub for a revision's commit, and not for long: its client's own requests wait without end."""
    try:
        found = HfApi().model_info(source.model, revision=source.revision, timeout=_TIMEOUT)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise _not_had(_Hub(source, root, None, error, offline=False), error) from error
    except Exception as error:  # noqa: BLE001 - those of its HTTP client, which it has changed twice
        return _Hub(source, root, source.revision, error, offline=False)
    return _Hub(source, root, found.sha or source.revision, None, offline=False)


def _fetch(hub: _Hub) -> Path:
    """Fetch what is needed and no more: another framework's weights can be as large again."""
    snapshot = _download(hub, (*PROCESSORS, *LICENSES, *SAFE_WEIGHTS, _SHARDS[0]))
    if any((snapshot / name).is_file() for name in SAFE_WEIGHTS) or not (snapshot / CONFIG).is_file():
        return snapshot
    if has_remote_code(read_json(snapshot / CONFIG)) and not hub.source.trust_remote_code:
        return snapshot  # it will be refused: nothing more is needed
    return _download(hub, (*PICKLED_WEIGHTS, _SHARDS[1]))


def _download(hub: _Hub, patterns: tuple[str, ...]) -> Path:
    disable_progress_bars()
    code = ("*.py",) if hub.source.trust_remote_code else ()
    try:
        found = snapshot_download(
            hub.source.model,
            revision=hub.revision,
            allow_patterns=[*patterns, *code],
            ignore_patterns=["*/*"],
            local_files_only=hub.offline or hub.silence is not None,
        )
    except Exception as error:  # its own, those of its HTTP client, OSError and ValueError
        raise _not_had(hub, hub.silence or error) from error
    return Path(found)


def _not_had(hub: _Hub, error: Exception) -> SourceError:
    source = hub.source
    kind = type(error).__name__
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    shown = source.model if source.revision is None else f"{source.model} at {source.revision}"
    if hub.offline:
        what = f"{shown} is not in the hub's cache, and HF_HUB_OFFLINE keeps repogen from fetching it"
        hint = f"fetch it where there is a network: hf download {source.model}, and share HF_HOME"
    elif isinstance(error, (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError)):
        what = f"the hub does not give {shown} ({kind})"
        hint = "correct the name or the revision; a private or gated model needs a login: hf auth login"
    else:
        what = f"{shown} could not be fetched from the hub, and is not in its cache: {kind}: {said[:300]}"
        hint = "look at the network and HF_ENDPOINT, or name a directory that save_pretrained wrote"
    if "/" in source.model and (hub.root / source.model).parent.is_dir():
        what = f"there is no directory {source.model!r}, and {what}"
    return _missing(what, hint, str(error))


def _missing(what: str, hint: str, details: str = "") -> SourceError:
    return SourceError(what, hint, code="source.hf-files", details=details)
