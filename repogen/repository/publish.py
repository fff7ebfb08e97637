"""Moves a staged version into the repository under the next number: atomically, and in an order that is crash-safe.

After a kill at any point, a freshly started Triton must be able to serve the repository, that is, config.pbtxt must fit
every version that it serves:

1. **The model is new**: one rename of its directory.
2. **config.pbtxt is unchanged**: one rename of the version directory.
3. **config.pbtxt changes, the signature does not**: two renames. Either config loads either graph, so only what a
   config *claims* about a version matters. If max_batch_size decreases, the config comes first, because the old config
   would batch a version that was not verified to batch. The version comes first if max_batch_size increases, or if the
   new version policy names a version that does not exist yet, or would temporarily serve an older version that the
   config does not fit.
4. **Neither order is safe** (a breaking signature, or both reasons at once): the complete new model directory is
   assembled in the stage, with old versions as hard links, and swapped in by one ``renameat2(RENAME_EXCHANGE)``.

If `repogen rollback` holds a version, config.pbtxt is not changed, and the version is moved in by one rename.

If a step fails, the steps before it are undone in reverse order. ``recovery`` repairs case 3 after a kill.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Protocol

from repogen.artifacts.file_names import ADOPTED_CONFIG, CONFIG_FILE, MANIFEST_FILE
from repogen.artifacts.named_file import DATA_DIRECTORIES
from repogen.artifacts.versions import Manifest, PublishedVersion, StagedVersion
from repogen.errors import PublishError
from repogen.files import reason
from repogen.files.content import write_new
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.compatibility import (
    differences,
    misfits,
    require_same_signature,
    require_same_tensors,
    require_servable,
)
from repogen.repository.decode import MalformedRecordError
from repogen.repository.filesystem import Disk, Filesystem, make_directory, make_readable_and_sync
from repogen.repository.hold import hold_of
from repogen.repository.layout import (
    config_bytes,
    latest_version,
    model_dir,
    next_version,
    require_own_directories,
    triton_versions,
    versions,
)
from repogen.repository.lock import locked
from repogen.repository.manifest import read_manifest
from repogen.repository.ownership import RepositoryKind, RepositoryOwner, read_owner, require_built
from repogen.repository.recovery import finish_interrupted_publish
from repogen.repository.transaction import Transaction
from repogen.repository.version_policy import served_versions
from repogen.triton_config.text.parse import parse


class Publish(Protocol):
    """Publishes a staged version: ``publish``, or the same for a repository in a store."""

    def __call__(
        self, staged: StagedVersion, repository: Path, *, breaking: bool, adopt: bool = False
    ) -> PublishedVersion:
        """Move a staged version into the repository; see ``publish``."""


class Order(Enum):
    """The order in which a version and its config are moved in."""

    NEW_MODEL = "the whole model"
    HELD = "version only: config.pbtxt names the held version alone, and stays"
    VERSION_ONLY = "version only"
    VERSION_FIRST = "version first"
    CONFIG_FIRST = "config first"
    SWAP = "swap"


def publish(
    staged: StagedVersion,
    repository: Path,
    *,
    breaking: bool,
    adopt: bool = False,
    filesystem: Filesystem | None = None,
    lock_seconds: float = 60.0,
) -> PublishedVersion:
    """Move a staged version into the repository under the next version number.

    Args:
        staged: The version; its staging directory is consumed, whether or not this succeeds.
        repository: The model repository; created if it does not exist.
        breaking: Allow inputs and outputs that differ from the published ones.
        adopt: Also publish into a model that repogen did not build: its versions stay, its config is kept as
            ``config.pbtxt.adopted``.
        filesystem: Replaces the disk in crash tests.
        lock_seconds: How long to wait for another publish.

    Returns:
        The version as published.

    Raises:
        PublishError: It was rejected or failed, and the repository is unchanged.
    """
    model = model_dir(repository, staged.name)
    try:
        make_readable_and_sync(staged.model_dir)
        make_directory(repository)
        with locked(repository, lock_seconds):
            require_built(repository)
            number = _publish(staged, model, filesystem or Disk(), breaking=breaking, adopt=adopt)
    except OSError as error:
        raise PublishError(
            f"{staged.name}: cannot be published into {repository}: {reason(error)}",
            "the repository is unchanged; free disk space or fix the permissions there, and run the command again",
            code="publish.write",
        ) from error
    return PublishedVersion(staged.name, number, model / str(number), staged.manifest.sha256, hold_of(model))


def choose_order(model: Path, published: Manifest, staged: StagedVersion) -> Order:
    """Return the order that is safe at every moment, see the module's docstring.

    Args:
        model: The model's directory.
        published: Manifest of the version that the current config.pbtxt was written for.
        staged: The new version.
    """
    if config_bytes(model) == staged.config.text.encode():
        return Order.VERSION_ONLY
    existing_versions = triton_versions(model)
    config = parse(staged.config.text, f"config.pbtxt of {staged.name}")
    breaks = bool(differences(published.signature, staged.manifest.signature))
    lowers = staged.config.max_batch_size < published.max_batch_size
    raises = staged.config.max_batch_size > published.max_batch_size
    early_config_fails = (
        raises
        or not set(config.version_policy.specific.versions).issubset(existing_versions)
        or bool(misfits(model, served_versions(config, existing_versions), staged))
    )
    if breaks or (lowers and early_config_fails):
        return Order.SWAP
    return Order.CONFIG_FIRST if lowers else Order.VERSION_FIRST


def _publish(staged: StagedVersion, model: Path, filesystem: Filesystem, *, breaking: bool, adopt: bool) -> int:
    require_plain_directory(model)
    finish_interrupted_publish(model, filesystem)
    with work_limit(f"model {staged.name}", COMMAND_SECONDS):  # not the renames: they are never interrupted
        number = next_version(model)
        order = _checked_order(model, number, staged, breaking=breaking, adopt=adopt)
    with Transaction(staged, model, number, filesystem) as transaction:
        _move(transaction, order)
        # a repository without an owner, after a kill before this line, counts as built as well
        if read_owner(model.parent) is None:
            transaction.write_owner(RepositoryOwner(RepositoryKind.BUILT))
    return number


def _checked_order(model: Path, number: int, staged: StagedVersion, *, breaking: bool, adopt: bool) -> Order:
    """Return the order in which a version is moved in, after all checks; the repository is not changed.

    Raises:
        PublishError: The version is rejected.
    """
    if not model.exists() or not any(model.iterdir()):
        require_servable(model, number, staged)
        return Order.NEW_MODEL
    if adopt and is_foreign(model):
        return _adoption_order(model, number, staged, breaking=breaking)
    latest = _newest(model)
    published = _manifest(model, latest)
    if not breaking:
        require_same_signature(published, latest, staged)
    require_servable(model, number, staged)
    if hold_of(model) is not None:
        return Order.HELD
    return choose_order(model, _manifest_of_config(model, latest, staged), staged)


def _move(transaction: Transaction, order: Order) -> None:
    """Move the version in."""
    if order is Order.NEW_MODEL:
        transaction.move_model()
        return
    if order is Order.SWAP:
        transaction.swap_model()
        return
    if order is Order.HELD:
        transaction.move_version()
        return
    transaction.move_named_files()
    if order is not Order.VERSION_ONLY:
        transaction.write_journal()
    if order is Order.CONFIG_FIRST:
        transaction.move_config()
    transaction.move_version()
    if order is Order.VERSION_FIRST:
        transaction.move_config()


def is_foreign(model: Path) -> bool:
    """Return whether a model's directory has a newest version that repogen did not build, or no version."""
    latest = latest_version(model)
    return latest is None or not (model / str(latest) / MANIFEST_FILE).exists()


def _adoption_order(model: Path, number: int, staged: StagedVersion, *, breaking: bool) -> Order:
    """Return the order for a model that repogen did not build; a copy of its config is added to the staged model."""
    config = config_bytes(model)
    if config is not None:
        if not breaking:
            require_same_tensors(config, staged)
        write_new(staged.model_dir / ADOPTED_CONFIG, config)
    require_servable(model, number, staged)
    return Order.SWAP


def require_publishable(model: Path) -> None:
    """Require that a version can be published into a model's directory, as far as that is known without the version.

    Raises:
        PublishError: The directory is a symlink or a file, repogen did not build its newest version, or it is damaged.
    """
    require_plain_directory(model)
    try:
        if model.exists() and any(model.iterdir()):
            _manifest(model, _newest(model))
    except OSError as error:
        raise PublishError(
            f"{model} cannot be read: {error.strerror}", "fix the permissions", code="repository.unreadable"
        ) from error


def require_plain_directory(model: Path) -> None:
    """Require that a model's directory, if it exists, is a directory with a regular config.pbtxt, and none a symlink.

    Raises:
        PublishError: It, its config.pbtxt, or a directory of data for the config is a symlink or something else. Or
            another user created it in a repository in which untrusted users can create files.
    """
    require_own_directories(model)
    for path in (model, model / CONFIG_FILE, *(model / directory for directory in DATA_DIRECTORIES)):
        if path.is_symlink():
            raise PublishError(
                f"{path} is a symlink, and repogen does not write through links",
                "replace it with its target, or publish under another model name",
                code="publish.symlink",
            )
    for path, is_kind, kind in ((model, Path.is_dir, "directory"), (model / CONFIG_FILE, Path.is_file, "regular file")):
        if path.exists() and not is_kind(path):
            raise PublishError(
                f"{path} is not a {kind}", "move it away, or use another model name", code="publish.foreign-model"
            )


def _newest(model: Path) -> int:
    latest = latest_version(model)
    if latest is None:
        raise _foreign(model, "has no version")
    return latest


def _manifest(model: Path, version: int) -> Manifest:
    try:
        return read_manifest(model / str(version))
    except FileNotFoundError:
        raise _foreign(model, f"has no manifest.json in its newest version {version}") from None
    except MalformedRecordError as error:
        raise PublishError(
            f"{model.name}: the newest version {version} is damaged: {error.message}",
            f"restore {model / str(version)}, or move it out of the repository; its number is not reused while that "
            "directory exists",
            code="publish.damaged-version",
        ) from error


def _foreign(model: Path, problem: str) -> PublishError:
    return PublishError(
        f"{model} {problem}: repogen did not build it, so compatibility cannot be checked",
        f"take it over with `repogen build --adopt {model.name}`: its versions and a copy of its config.pbtxt stay; or "
        "publish under another model name",
        code="publish.foreign-model",
    )


def _manifest_of_config(model: Path, latest: int, staged: StagedVersion) -> Manifest:
    """Return the manifest of the newest version that the model's config.pbtxt was written for.

    Raises:
        PublishError: It is neither the config of a version nor the one to be published: a user edited it.
    """
    config = config_bytes(model)
    for version in reversed(versions(model)):
        if config is None or config == config_bytes(model / str(version)):
            return _manifest(model, version)
    if config == staged.config.text.encode():
        return _manifest(model, latest)
    raise PublishError(
        f"{model / CONFIG_FILE} was edited after repogen wrote it, and publishing would undo the edit",
        f"make the change in the spec, then restore the file: cp {model}/{latest}/{CONFIG_FILE} {model}/{CONFIG_FILE}",
        code="publish.edited-config",
    )
