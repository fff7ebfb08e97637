"""A repository that follows a registry's alias: its state, and the renames that change it.

``<repository>/<model>/<N>/`` uses the registry's version number, and config.pbtxt is that version's own with a version
policy that names N alone. So a version directory can be moved in first without effect, and the rename of config.pbtxt
is the moment at which Triton changes from one version to the other. After a kill between the two the old version is
served, and the next sync continues from there. A model that loses its alias is renamed to
``<repository>.unserved/<model>``, the archive.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.errors import ConfigError, PublishError, RepogenError
from repogen.files import is_foreign_in_public
from repogen.files.work_limit import work_limit
from repogen.repository.decode import MalformedRecordError
from repogen.repository.filesystem import NO_EXCHANGE, make_directory, opened_directory
from repogen.repository.layout import archive_dir, config_bytes, model_dir, triton_versions, versions
from repogen.repository.lock import locked
from repogen.repository.manifest import damaged_files, damaged_named_files, read_manifest
from repogen.repository.ownership import RepositoryKind, RepositoryOwner, read_owner, require_synced
from repogen.repository.publish import require_plain_directory
from repogen.repository.transaction import Transaction, write_owner
from repogen.repository.version_policy import served_versions, serving_only
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repogen.artifacts.sync import DesiredVersion
    from repogen.artifacts.versions import StagedVersion
    from repogen.repository.filesystem import Filesystem


@dataclass(frozen=True)
class LocalModel:
    """The state of a model, compared with the version that should be served.

    Attributes:
        directory: Its directory, in the repository or in the archive; None if it has none.
        visible: Whether that is in the repository.
        intact: Whether it contains the version, with the files that the registry has.
        configured: Whether config.pbtxt, and the files that it names, are as they should be.
        served: Versions that config.pbtxt serves now; empty if it can't be read.
    """

    directory: Path | None
    visible: bool = False
    intact: bool = False
    configured: bool = False
    served: frozenset[int] = frozenset()

    @property
    def up_to_date(self) -> bool:
        """Whether the version is served as it should be."""
        return self.visible and self.intact and self.configured


def require_plain_archive(repository: Path) -> None:
    """Require that the archive is not a symlink, nor another user's: models are moved into it, and back.

    Raises:
        PublishError: It is.
    """
    archive = archive_dir(repository)
    if archive.is_symlink():
        raise PublishError(
            f"{archive} is a symlink, and repogen does not write through links",
            "replace it with a directory on the repository's filesystem, or remove it",
            code="sync.symlink",
        )
    if is_foreign_in_public(archive, archive.parent):
        raise PublishError(
            f"{archive} belongs to another user, who could replace the models in it",
            "remove it, or move the repository to a directory in which only trusted users can create files",
            code="sync.foreign-archive",
        )


def inspect_model(repository: Path, desired: DesiredVersion) -> LocalModel:
    """Compare a model with the version that should be served; every file of the version is hashed.

    Raises:
        PublishError: The model's directory contains files that repogen does not manage.
    """
    model = model_dir(repository, desired.name)
    candidates = (model, archive_dir(repository) / desired.name)
    directory = next((path for path in candidates if os.path.lexists(path)), None)
    if directory is not None and directory != model:
        require_plain_archive(repository)
    if directory is None or not _is_usable(directory):
        return LocalModel(None)
    with work_limit(f"model {desired.name}"):
        intact = _contains(directory, desired)
        return LocalModel(
            directory,
            visible=directory == model,
            intact=intact,
            configured=intact and _is_configured(directory, desired),
            served=frozenset(served_from(directory)),
        )


def is_from_registry(model: Path) -> bool:
    """Return whether a model's directory contains a version that repogen built."""
    return any((model / str(version) / MANIFEST_FILE).is_file() for version in versions(model))


def served_from(model: Path) -> tuple[int, ...]:
    """Return the versions that a model's config.pbtxt serves, newest first; empty if it can't be read."""
    return _served_numbers(model, triton_versions(model)) or ()


@contextmanager
def synced_repository(
    repository: Path, alias: str, filesystem: Filesystem, lock_seconds: float = 60.0
) -> Iterator[None]:
    """Hold the lock of a repository that follows an alias; a new one is created with ``repogen.json``.

    Raises:
        PublishError: Another publish holds the lock, or the repository does not follow the alias.
    """
    make_directory(repository)
    with locked(repository, lock_seconds):
        require_synced(repository, alias)
        if read_owner(repository) is None:
            write_owner(repository, RepositoryOwner(RepositoryKind.SYNCED, (alias,)), filesystem)
        yield


def serve(staged: StagedVersion, repository: Path, local: LocalModel, filesystem: Filesystem) -> None:
    """Make a repository serve a version; the caller holds the lock.

    Args:
        staged: As ``stage_download`` returned it; contains the version's files unless the repository has them intact.
        repository: The repository.
        local: The model's state, determined while holding the lock.
        filesystem: Performs the changes.

    Raises:
        PublishError: It was rejected, and the model is unchanged.
        OSError: It failed, and the model is unchanged.
    """
    model = model_dir(repository, staged.name)
    if not local.intact and not (staged.version_dir / MANIFEST_FILE).is_file():
        raise PublishError(
            f"{staged.name}: the repository's version {staged.version} changed during the sync",
            "sync again",
            code="sync.changed-meanwhile",
        )
    try:
        with Transaction(staged, local.directory or model, staged.version, filesystem) as transaction:
            if local.directory is None:
                transaction.move_model()
                return
            _move_in(transaction, local, local.directory, staged)
            if not local.visible:
                transaction.rename_model(model)
    except PublishError as error:
        if error.code != NO_EXCHANGE:
            raise
        raise _cannot_swap(model) from error


def archive(repository: Path, name: str, filesystem: Filesystem) -> None:
    """Move a model out of the repository into the archive by one rename; the caller holds the lock.

    Raises:
        PublishError: The archive already contains a model of this name, is a symlink, or belongs to another user.
        OSError: It failed, and the model is unchanged.
    """
    model, target = model_dir(repository, name), archive_dir(repository) / name
    require_plain_directory(model)
    if os.path.lexists(target):
        raise PublishError(
            f"cannot archive {name}, which lost its alias: {target} already exists",
            "move it away, or delete it",
            code="sync.in-the-way",
        )
    make_directory(target.parent)
    require_plain_archive(repository)  # another user may have created it first
    _move(model, target, filesystem)


def discard(path: Path, scratch: Path, filesystem: Filesystem) -> None:
    """Move a version or a model into a directory that will be deleted, so that Triton never sees a part of it.

    Raises:
        OSError: It failed, and the directory is unchanged; or a symlink has replaced the directory that contains it.
    """
    target = Path(mkdtemp(prefix="discarded-", dir=scratch)) / path.name
    with opened_directory(path.parent) as parent:
        _move(parent / path.name, target, filesystem)


def _is_usable(directory: Path) -> bool:
    """Return whether a model's directory can be changed by a sync; an empty one counts as missing."""
    require_plain_directory(directory)
    if not any(directory.iterdir()):
        return False
    if versions(directory) and not is_from_registry(directory):
        raise PublishError(
            f"{directory} contains versions that did not come from the registry",
            "move it out of the repository, or register the model under another name",
            code="sync.foreign-model",
        )
    return True


def _contains(directory: Path, desired: DesiredVersion) -> bool:
    version = directory / str(desired.version)
    try:
        manifest = read_manifest(version)
        return manifest.content_sha256 == desired.content and not damaged_files(version, manifest)
    except (OSError, RepogenError):
        return False


def _is_configured(directory: Path, desired: DesiredVersion) -> bool:
    """Return whether config.pbtxt is the one in an intact version, serving it alone, and its named files match."""
    version = directory / str(desired.version)
    try:
        expected = serving_only((config_bytes(version) or b"").decode(), desired.version)
    except (ConfigError, UnicodeDecodeError):
        return False
    files = read_manifest(version).files
    return config_bytes(directory) == expected.encode() and not damaged_named_files(directory, files)


def _served_numbers(model: Path, candidates: Iterable[int]) -> tuple[int, ...] | None:
    """Return those of the candidates that a model's config.pbtxt serves; None if it is missing or can't be parsed."""
    try:
        config = config_bytes(model)
        return None if config is None else served_versions(parse(config.decode(), model.name), candidates)
    except (ConfigError, MalformedRecordError, UnicodeDecodeError):
        return None


def _move_in(transaction: Transaction, local: LocalModel, directory: Path, staged: StagedVersion) -> None:
    """Move in the missing files, the version before the config that names it."""
    configured = config_bytes(directory) == staged.config.text.encode()
    transaction.move_named_files()
    if not local.intact:
        if local.visible and not configured and _would_serve(directory, staged.version):
            transaction.swap_model()
            return
        if os.path.lexists(directory / str(staged.version)):
            transaction.replace_version()
        else:
            transaction.move_version()
    if not configured:
        transaction.move_config()


def _would_serve(directory: Path, version: int) -> bool:
    """Return whether the current config.pbtxt, which sync did not write, might serve a version that is moved in."""
    served_numbers = _served_numbers(directory, {*triton_versions(directory), version})
    return served_numbers is None or version in served_numbers


def _cannot_swap(model: Path) -> PublishError:
    return PublishError(
        f"{model} contains files that were edited, and its filesystem cannot replace the directory atomically",
        f"remove {model} while no Triton serves it, and sync again; ext4, xfs, btrfs and tmpfs can swap directories",
        code=NO_EXCHANGE,
    )


def _move(source: Path, target: Path, filesystem: Filesystem) -> None:
    try:
        filesystem.rename(source, target)
    except BaseException:
        if not os.path.lexists(source) and os.path.lexists(target):
            filesystem.rename(target, source)
        raise
