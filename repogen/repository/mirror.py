"""A repository that follows a registry: what lies there, and the renames that change it.

``<repository>/<model>/<N>/`` bears the registry's number, and config.pbtxt is that version's own with a version policy
that names N alone. So a version directory may come in first, unseen, and the rename of config.pbtxt is the moment in
which Triton turns from one version to the other; a kill between the two leaves the old one served, and the next sync
goes on from what it finds. What loses its alias is renamed to ``<repository>.unserved/<model>``.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.errors import PublishError, RepogenError
from repogen.repository.filesystem import NO_EXCHANGE
from repogen.repository.layout import model_dir, unserved_dir, versions
from repogen.repository.lock import locked
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.named_files import named_files_in_place
from repogen.repository.ownership import RepositoryKind, RepositoryMark, read_mark, require_synced
from repogen.repository.publish import require_plain_directory
from repogen.repository.recovery import config_bytes
from repogen.repository.transaction import Change, write_mark
from repogen.repository.version_policy import serving_only, version_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.sync import Wanted
    from repogen.artifacts.versions import StagedVersion
    from repogen.repository.filesystem import Filesystem


@dataclass(frozen=True)
class LocalModel:
    """What there is of a model, seen from the version that should be served.

    Attributes:
        home: Its directory, in the repository or among the unserved; None when there is none.
        visible: Whether that is in the repository.
        whole: Whether the version is there, with the files that the registry holds.
        configured: Whether config.pbtxt, and the label files that it names, are as they should be.
        served: Versions that config.pbtxt serves now; none when it can't be read.
    """

    home: Path | None
    visible: bool
    whole: bool
    configured: bool
    served: frozenset[int]

    @property
    def in_order(self) -> bool:
        """Whether there is nothing to do."""
        return self.visible and self.whole and self.configured


def look(repository: Path, wanted: Wanted) -> LocalModel:
    """Compare a model with what should be served; every file of the version is hashed.

    Raises:
        PublishError: Something lies there that is not for repogen to touch.
    """
    model = model_dir(repository, wanted.name)
    home = next((place for place in (model, unserved_dir(repository) / wanted.name) if os.path.lexists(place)), None)
    if home is None or not _usable(home):
        return LocalModel(None, visible=False, whole=False, configured=False, served=frozenset())
    version = home / str(wanted.version)
    whole = _holds(version, wanted.content)
    kept = config_bytes(version) if whole else None
    meant = None if kept is None else serving_only(kept.decode(errors="replace"), wanted.version)
    labeled = whole and named_files_in_place(home, read_manifest(version).files)
    return LocalModel(
        home,
        visible=home == model,
        whole=whole,
        configured=labeled and meant is not None and config_bytes(home) == meant.encode(),
        served=served_versions(home),
    )


def is_from_registry(model: Path) -> bool:
    """Return whether a model's directory holds a version that repogen made."""
    return any((model / str(version) / MANIFEST_FILE).is_file() for version in versions(model))


def served_versions(home: Path) -> frozenset[int]:
    """Return the versions that a model's config.pbtxt serves; none when it can't be read."""
    config = config_bytes(home)
    try:
        return frozenset() if config is None else version_policy(config.decode()).served(versions(home))
    except (PublishError, UnicodeDecodeError):
        return frozenset()


def stale_versions(home: Path, wanted: Wanted) -> tuple[Path, ...]:
    """Return the version directories of repogen's making that are not the wanted one."""
    others = (home / str(version) for version in versions(home) if version != wanted.version)
    return tuple(path for path in others if (path / MANIFEST_FILE).is_file())


@contextmanager
def synced_repository(
    repository: Path, alias: str, filesystem: Filesystem, lock_seconds: float = 60.0
) -> Iterator[None]:
    """Hold the lock of a repository that follows an alias; it is made, and marked so, when there is none.

    Raises:
        PublishError: Another publish holds the lock, or the repository is no such one.
    """
    repository.mkdir(mode=0o755, parents=True, exist_ok=True)
    with locked(repository, lock_seconds):
        require_synced(repository, alias)
        if read_mark(repository) is None:
            write_mark(repository, RepositoryMark(RepositoryKind.SYNCED, (alias,)), filesystem)
        yield


def serve(staged: StagedVersion, repository: Path, local: LocalModel, filesystem: Filesystem) -> None:
    """Have a repository serve a version; the caller holds the lock.

    Args:
        staged: As ``stage_wanted`` made it; holds the version's files unless they were whole in the repository.
        repository: The repository.
        local: What ``look`` saw since the lock is held.
        filesystem: What is done is done by it.

    Raises:
        PublishError: It was refused, and the model is as it was.
        OSError: It failed, and the model is as it was.
    """
    model = model_dir(repository, staged.name)
    if not local.whole and not (staged.version_dir / MANIFEST_FILE).is_file():
        raise PublishError(
            f"{staged.name}: the repository's version {staged.version} was changed while it was looked at",
            "Sync again.",
            code="sync.changed-meanwhile",
        )
    try:
        with Change(staged, local.home or model, staged.version, filesystem) as change:
            if local.home is None:
                change.move_model()
                return
            _bring_in(change, local, local.home, staged)
            if not local.visible:
                change.rename_model(model)
    except PublishError as error:
        if error.code != NO_EXCHANGE:
            raise
        raise _cannot_swap(model) from error


def unserve(repository: Path, name: str, filesystem: Filesystem) -> None:
    """Move a model out of the repository by one rename; the caller holds the lock.

    Raises:
        PublishError: Something is in the way.
        OSError: It failed, and the model is where it was.
    """
    model, shelf = model_dir(repository, name), unserved_dir(repository)
    require_plain_directory(model)
    if os.path.lexists(shelf / name):
        raise PublishError(
            f"{shelf / name} is in the way of {name}, which lost its alias",
            "Move it away, or delete it.",
            code="sync.in-the-way",
        )
    shelf.mkdir(mode=0o755, exist_ok=True)
    _move(model, shelf / name, filesystem)


def discard(path: Path, bin_: Path, filesystem: Filesystem) -> None:
    """Move a version or a model into a directory that will be deleted, so that Triton never sees half of it.

    Raises:
        OSError: It failed, and the directory is where it was.
    """
    _move(path, Path(mkdtemp(prefix="discarded-", dir=bin_)) / path.name, filesystem)


def _usable(home: Path) -> bool:
    """Return whether a model's directory can be worked on; an empty one might as well not be there."""
    require_plain_directory(home)
    if not any(home.iterdir()):
        return False
    if versions(home) and not is_from_registry(home):
        raise PublishError(
            f"{home} holds versions that did not come from the registry",
            "Move it out of the repository, or register the model under another name.",
            code="sync.foreign-model",
        )
    return True


def _holds(version: Path, content: str) -> bool:
    try:
        manifest = read_manifest(version)
        return manifest.content_sha256 == content and not damaged_files(version, manifest)
    except (OSError, RepogenError):
        return False


def _bring_in(change: Change, local: LocalModel, home: Path, staged: StagedVersion) -> None:
    """Bring in what is missing, the version before the config that names it."""
    configured = config_bytes(home) == staged.config.text.encode()
    change.move_named_files()
    if not local.whole:
        if local.visible and not configured and _would_serve(home, staged.version):
            change.swap_model()
            return
        if os.path.lexists(home / str(staged.version)):
            change.replace_version()
        else:
            change.move_version()
    if not configured:
        change.move_config()


def _would_serve(home: Path, version: int) -> bool:
    """Return whether the config.pbtxt that is there, not a sync's, might serve a version that comes in."""
    config = config_bytes(home)
    try:
        policy = None if config is None else version_policy(config.decode())
    except (PublishError, UnicodeDecodeError):
        policy = None
    return policy is None or version in policy.served({*versions(home), version})


def _cannot_swap(model: Path) -> PublishError:
    return PublishError(
        f"{model} holds files that others changed, and its filesystem cannot swap in the registry's in one moment",
        f"Remove {model} while no Triton needs it, and sync again; ext4, xfs, btrfs and tmpfs can swap.",
        code=NO_EXCHANGE,
    )


def _move(source: Path, target: Path, filesystem: Filesystem) -> None:
    try:
        filesystem.rename(source, target)
    except BaseException:
        if not os.path.lexists(source) and os.path.lexists(target):
            filesystem.rename(target, source)
        raise
