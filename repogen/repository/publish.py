"""Move a staged version into the repository: next number, whole or not at all, in an order that survives `kill -9`.

After a kill at any point, a freshly started Triton must be able to serve the repository, that is, whatever config.pbtxt
lies there must fit every version that it serves:

1. **The model is new**: one rename of its whole directory.
2. **config.pbtxt stays the same**: one rename of the version directory.
3. **config.pbtxt changes, the signature does not**: two renames. Either config loads either graph, so what counts is
   what a config *claims* of a version. max_batch_size goes down: config first, or the old config would batch a version
   that was not shown to batch. It goes up, or the new version policy names a version that is not there yet, or would
   for that moment serve an older version that does not fit: version first.
4. **Neither order is safe** (a breaking signature, or both reasons at once): the complete new model directory is
   assembled in the stage, old versions as hard links, and swapped in by one ``renameat2(RENAME_EXCHANGE)``.

Whatever fails is taken back in reverse order; what a kill leaves of case 3 is repaired by ``recovery``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.versions import Manifest, PublishedVersion, StagedVersion
from repogen.errors import PublishError
from repogen.repository.compatibility import differences, misfits, require_same_signature, require_servable
from repogen.repository.decode import MalformedRecordError
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.layout import latest_version, model_dir, next_version, versions
from repogen.repository.lock import locked
from repogen.repository.manifest import read_manifest
from repogen.repository.ownership import RepositoryKind, RepositoryMark, read_mark, require_built
from repogen.repository.recovery import config_bytes, settle
from repogen.repository.transaction import Change, open_and_sync
from repogen.repository.version_policy import version_policy

if TYPE_CHECKING:
    from pathlib import Path


class Order(Enum):
    """How a version and its config come in."""

    VERSION_ONLY = "version only"
    VERSION_FIRST = "version first"
    CONFIG_FIRST = "config first"
    SWAP = "swap"


def publish(
    staged: StagedVersion,
    repository: Path,
    *,
    breaking: bool,
    filesystem: Filesystem | None = None,
    lock_seconds: float = 60.0,
) -> PublishedVersion:
    """Move a staged version into the repository under the next version number.

    Args:
        staged: The version; its staging directory is used up, whether or not this succeeds.
        repository: The model repository; made when it does not exist.
        breaking: Allow inputs and outputs that differ from the published ones.
        filesystem: Stands in for the disk in crash tests.
        lock_seconds: How long to wait for another publish.

    Returns:
        The version as published.

    Raises:
        PublishError: It was refused or failed, and the repository is as it was.
    """
    model = model_dir(repository, staged.name)
    try:
        open_and_sync(staged.model_dir)
        repository.mkdir(mode=0o755, parents=True, exist_ok=True)
        with locked(repository, lock_seconds):
            require_built(repository)
            number = _publish(staged, model, filesystem or Disk(), breaking=breaking)
    except OSError as error:
        raise PublishError(
            f"{staged.name}: cannot be published into {repository}: {error.strerror} ({error.filename})",
            "The repository is as it was. Free disk space or mend permissions there, and build again.",
            code="publish.write",
        ) from error
    return PublishedVersion(staged.name, number, model / str(number), staged.manifest.sha256)


def choose_order(model: Path, published: Manifest, staged: StagedVersion) -> Order:
    """Return the order in which no moment is unsafe; see the module's text.

    Args:
        model: The model's directory.
        published: Manifest of the version that the present config.pbtxt was written for.
        staged: The new version.
    """
    if config_bytes(model) == staged.config.text.encode():
        return Order.VERSION_ONLY
    present, policy = versions(model), version_policy(staged.config.text)
    breaks = bool(differences(published.signature, staged.manifest.signature))
    lowers = staged.config.max_batch_size < published.max_batch_size
    raises = staged.config.max_batch_size > published.max_batch_size
    early_config_fails = (
        raises or not policy.specific.issubset(present) or bool(misfits(model, policy.served(present), staged))
    )
    if breaks or (lowers and early_config_fails):
        return Order.SWAP
    return Order.CONFIG_FIRST if lowers else Order.VERSION_FIRST


def _publish(staged: StagedVersion, model: Path, filesystem: Filesystem, *, breaking: bool) -> int:
    require_plain_directory(model)
    settle(model, filesystem)
    number = next_version(model)
    with Change(staged, model, number, filesystem) as change:
        if not model.exists() or not any(model.iterdir()):
            require_servable(model, number, staged)
            change.move_model()
        else:
            _move_into(change, model, number, staged, breaking=breaking)
        if read_mark(model.parent) is None:  # a kill before this leaves a repository that counts as built all the same
            change.write_mark(RepositoryMark(RepositoryKind.BUILT))
    return number


def _move_into(change: Change, model: Path, number: int, staged: StagedVersion, *, breaking: bool) -> None:
    """Move the version into a model that is there."""
    latest = _newest(model)
    published = _manifest(model, latest)
    if not breaking:
        require_same_signature(published, latest, staged)
    require_servable(model, number, staged)
    order = choose_order(model, _configured(model, latest, staged), staged)
    if order is Order.SWAP:
        change.swap_model()
        return
    change.move_named_files()
    if order is not Order.VERSION_ONLY:
        change.write_journal()
    if order is Order.CONFIG_FIRST:
        change.move_config()
    change.move_version()
    if order is Order.VERSION_FIRST:
        change.move_config()


def require_plain_directory(model: Path) -> None:
    """Refuse to write through a link, or to where a file lies.

    Args:
        model: The model's directory, which need not exist.

    Raises:
        PublishError: It, or its config.pbtxt, is a symlink, or it is a file.
    """
    for path in (model, model / CONFIG_FILE):
        if path.is_symlink():
            raise PublishError(
                f"{path} is a symlink, and repogen does not write through links out of the repository",
                "Replace it by what it points to, or publish under another model name.",
                code="publish.symlink",
            )
    if model.exists() and not model.is_dir():
        raise PublishError(
            f"{model} is no directory", "Move it away, or use another model name.", code="publish.foreign-model"
        )


def _newest(model: Path) -> int:
    latest = latest_version(model)
    if latest is None:
        raise _foreign(model, "holds no version")
    return latest


def _manifest(model: Path, version: int) -> Manifest:
    try:
        return read_manifest(model / str(version))
    except FileNotFoundError:
        raise _foreign(model, f"has no manifest.json in its newest version {version}") from None
    except MalformedRecordError as error:
        raise PublishError(
            f"{model.name}: the newest version {version} is damaged: {error.message}",
            f"Restore {model / str(version)}, or move it out of the repository; its number is not used again while it "
            "is there.",
            code="publish.damaged-version",
        ) from error


def _foreign(model: Path, what: str) -> PublishError:
    return PublishError(
        f"{model} {what}: repogen did not build it, and does not know its signature",
        "Move it out of the repository, or publish under another model name.",
        code="publish.foreign-model",
    )


def _configured(model: Path, latest: int, staged: StagedVersion) -> Manifest:
    """Return the manifest of the version that the model's config.pbtxt was written for, the newest such one.

    Raises:
        PublishError: It is no version's config, nor the one to be published: a person edited it.
    """
    config = config_bytes(model)
    for version in reversed(versions(model)):
        if config is None or config == config_bytes(model / str(version)):
            return _manifest(model, version)
    if config == staged.config.text.encode():
        return _manifest(model, latest)
    raise PublishError(
        f"{model / CONFIG_FILE} was edited after repogen wrote it, and publishing would undo the edit",
        f"Put the change into the spec, then restore the file: cp {model}/{latest}/{CONFIG_FILE} {model}/{CONFIG_FILE}",
        code="publish.edited-config",
    )
