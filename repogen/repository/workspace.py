"""A private directory next to the repository, from which a build moves complete versions into it by renames.

It is outside the repository, because Triton loads every directory in a repository's root as a model, and on the same
filesystem, because a rename requires that. The build holds a lock on a file in it. If the lock is free, the build was
killed, and the next build removes the directory.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import PublishError
from repogen.files import reason
from repogen.files.paths import real_path
from repogen.files.resolve import resolved
from repogen.files.tree import remove_tree
from repogen.repository.filesystem import make_directory
from repogen.repository.layout import PROBE_PREFIX, stage_container, temporary_files
from repogen.repository.lock import LOCK_FILE, try_lock
from repogen.repository.ownership import NEW_OWNER_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from filelock import FileLock

_LOCK = "build.lock"
_ATTEMPTS = 100


def preflight(repository: Path, stage_dir: Path | None) -> None:
    """Check that a build can publish into the repository: its last step would fail otherwise. Leaves no files.

    Args:
        repository: The model repository, which need not exist yet.
        stage_dir: Directory to stage in; None for the repository's parent.

    Raises:
        SpecError: A symlink of another user redirects one of the paths.
        PublishError: The repository is not a directory or cannot be written, or the staging directory is inside it or
            on another filesystem.
    """
    repository = resolved(repository)
    if stage_dir is not None:
        stage_dir = resolved(stage_dir)
    parent = _stage_parent(repository, stage_dir)
    target, source = _existing(repository, "repository"), _existing(parent, "staging directory")
    _require_writable(target, repository)
    if target.stat().st_dev != source.stat().st_dev:
        raise _other_filesystem(repository, parent)
    _probe(source, target, repository, parent)


@contextmanager
def prepare_stage_root(repository: Path, stage_dir: Path | None) -> Iterator[Path]:
    """Yield a root for one build, with an empty ``repository/`` and an empty ``private/``; remove it afterward.

    Args:
        repository: The model repository, which need not exist yet.
        stage_dir: Directory to stage in; None for the repository's parent.

    Yields:
        ``<parent>/.<repository's name>.repogen-stage/build-<id>``, on the repository's filesystem.

    Raises:
        RepogenError: As ``preflight``.
    """
    preflight(repository, stage_dir)
    repository = _resolved(repository)
    parent = _stage_parent(repository, stage_dir)
    new_parents = [path for path in (parent, *parent.parents) if not path.exists()]
    container = stage_container(repository, None if stage_dir is None else parent)
    try:
        sweep(repository, stage_dir)
        try:
            root, lock = _create(container)
        except OSError as error:  # for example, another user's build made the container
            raise _not_writable(str(container), repository, error) from error
        try:
            try:
                make_directory(private_repository(root))
                private_directory(root).mkdir(0o700)
            except OSError as error:
                raise write_error(repository.name, root, error) from error
            yield root
        finally:
            # before the lock is released, so that no other build removes it at the same time
            _remove(root)
            lock.release()
    finally:
        for path in (container, *new_parents):
            with suppress(OSError):  # another build, or the new repository, uses it
                path.rmdir()


def sweep(repository: Path, stage_dir: Path | None) -> None:
    """Remove what builds and syncs that were killed have left; what another process uses is kept.

    These are staging directories, files of ``preflight``, and a ``repogen.json`` that was not renamed yet.

    Args:
        repository: The model repository, which need not exist.
        stage_dir: As for ``prepare_stage_root``.
    """
    repository = _resolved(repository)
    parent = repository.parent if stage_dir is None else _resolved(stage_dir)
    container = stage_container(repository, None if stage_dir is None else parent)
    with suppress(OSError):
        _sweep_container(container)
        container.rmdir()
    for directory in {repository, parent}:
        with suppress(OSError, PublishError):
            for path in temporary_files(directory):
                _remove_unused(path, path)
    if os.path.lexists(repository / NEW_OWNER_FILE):
        with suppress(OSError, PublishError):
            _remove_unused(repository / NEW_OWNER_FILE, repository / LOCK_FILE)


def write_error(name: str, directory: Path, error: OSError) -> PublishError:
    """Return the error that a model's files cannot be written or read while it is built."""
    return PublishError(
        f"{name}: cannot be staged in {directory}: {reason(error)}",
        "free disk space or fix the permissions there, or choose another directory with --stage-dir",
        code="stage.write",
    )


def private_repository(root: Path) -> Path:
    """Return the private model repository of a stage root."""
    return root / "repository"


def private_directory(root: Path) -> Path:
    """Return the directory of a stage root that only this user can read, for files that were not examined yet.

    A library may have read another user's link to a private file, which is detected afterward.
    """
    return root / "private"


def _stage_parent(repository: Path, stage_dir: Path | None) -> Path:
    if stage_dir is None:
        return repository.parent
    parent = _resolved(stage_dir)
    if parent.is_relative_to(repository):
        raise PublishError(
            f"the staging directory {stage_dir} is inside the model repository {repository}",
            "set --stage-dir to a directory outside of it: Triton loads every directory in a repository as a model",
            code="stage.inside-repository",
        )
    return parent


def _resolved(path: Path) -> Path:
    """Return a path without symlinks; one in a loop stays as it is."""
    return real_path(path)


def _existing(path: Path, kind: str) -> Path:
    """Return ``path``, or its nearest parent that exists.

    Raises:
        PublishError: A part of the path is not a directory, is a symlink loop, or is too long.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise PublishError(
            f"the {kind} {path} cannot be used: {error.strerror}", "choose another path", code="stage.no-directory"
        ) from error
    nearest = next(candidate for candidate in (path, *path.parents) if os.path.lexists(candidate))
    if not nearest.is_dir():
        raise PublishError(
            f"the {kind} {path} cannot be created: {nearest} is not a directory", code="stage.no-directory"
        )
    return nearest


def _require_writable(directory: Path, repository: Path) -> None:
    """Require that files can be created in a directory: the repository, or the one in which it will be created.

    Raises:
        PublishError: They can't: its permissions or its filesystem prevent it, as that of ``/proc`` does.
    """
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        place = "it" if directory == repository else directory
        detail = "" if error.errno == errno.ENOENT else f": {error.strerror}"
        raise PublishError(
            f"{repository} can't be a model repository: files can't be created in {place}{detail}",
            "choose another directory, with --repository or `repository:` in the spec, or fix its permissions",
            code="stage.not-writable",
        ) from error


def _probe(source: Path, target: Path, repository: Path, parent: Path) -> None:
    """Rename a file from one directory into the other, which detects permissions, read-only mounts and bind mounts.

    Triton ignores files in a repository's root. Equal device numbers do not prove that a rename works: there may be two
    bind mounts of one filesystem.
    """
    try:
        for _ in range(_ATTEMPTS):
            if _renamed(source, target):
                return
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise _other_filesystem(repository, parent) from error
        raise _not_writable(f"{source} and {target}", repository, error) from error
    raise _contended(source)


def _renamed(source: Path, target: Path) -> bool:
    """Rename an empty file; return False if another build's sweep removed it before it was locked."""
    name = f"{PROBE_PREFIX}{os.urandom(8).hex()}"
    lock = None
    try:
        (source / name).touch()
        lock = try_lock(source / name)  # so that no sweep removes it
        if lock is not None:
            (source / name).rename(target / name)
        return lock is not None
    finally:
        for directory in (source, target):
            with suppress(OSError):  # removing it fails where it could not be written
                (directory / name).unlink()
        if lock is not None:
            lock.release()


def _other_filesystem(repository: Path, parent: Path) -> PublishError:
    return PublishError(
        f"the staging directory {parent} and the model repository {repository} are on different filesystems, so a "
        "version could not be published by a rename",
        "set --stage-dir to a directory on the repository's filesystem, outside the repository; if the repository is "
        "itself a mount point, use a subdirectory of the mount as the repository",
        code="stage.other-filesystem",
    )


def _not_writable(paths: str, repository: Path, error: OSError) -> PublishError:
    return PublishError(
        f"{paths} must be writable to publish into {repository}: {error.strerror}",
        "fix the permissions, or choose other directories with --repository and --stage-dir",
        code="stage.not-writable",
    )


def _contended(path: Path) -> PublishError:
    return PublishError(
        f"other processes keep removing the files that repogen creates in {path}", code="stage.contended"
    )


def _create(container: Path) -> tuple[Path, FileLock]:
    """Create and lock a build directory; another build's sweep may remove one before it is locked."""
    for _ in range(_ATTEMPTS):
        # the other build removed the container, or the directory in it, perhaps while a library created it
        with suppress(FileNotFoundError, FileExistsError):
            _make_container(container)
            root = Path(tempfile.mkdtemp(prefix="build-", dir=container))
            lock = try_lock(root / _LOCK)
            if lock is not None:
                root.chmod(0o755)  # mkdtemp sets 0700, and a Triton of another user reads the private repository
                return root, lock
    raise _contended(container)


def _remove(root: Path) -> None:
    try:
        _remove_locked(root)
    except KeyboardInterrupt:  # the first Ctrl-C, at the end of a build
        _remove_locked(root)
        raise


def _remove_locked(root: Path) -> None:
    """Delete the directory of a build as far as possible, its lock last: a sweep removes only what has a lock."""
    with suppress(OSError):
        for path in root.iterdir():
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            elif path.name != _LOCK:
                path.unlink()
        if {path.name for path in root.iterdir()} <= {_LOCK}:
            remove_tree(root)


def _make_container(container: Path) -> None:
    """Create the directory of all builds' staging directories; one that exists may have been planted.

    Raises:
        PublishError: It is a symlink, or belongs to a user who could exchange the staged files.
    """
    make_directory(container)
    if reason := _foreign_reason(container):
        raise PublishError(
            f"{container} {reason}: the files that are tested there could be replaced before they are published",
            "remove it, or choose another directory with --stage-dir",
            code="stage.foreign",
        )


def _foreign_reason(container: Path) -> str:
    """Return why a container may not be used: another user could exchange what is in it; empty if it may be.

    Raises:
        OSError: It does not exist.
    """
    status = container.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "is a symlink"
    return "" if status.st_uid in {os.geteuid(), container.parent.stat().st_uid} else "belongs to another user"


def _sweep_container(container: Path) -> None:
    """Remove the directories of builds that were killed: their locks are free."""
    if _foreign_reason(container):
        return
    for root in container.glob("build-*"):
        if not root.is_symlink():
            with suppress(OSError, PublishError):
                _remove_root(root)


def _remove_root(root: Path) -> None:
    """Remove the directory of a build if its lock is free.

    One without a lock is removed only if it is empty: it may be any directory, which a user who can rename the
    container's neighbors has given this name.
    """
    if not os.path.lexists(root / _LOCK):
        root.rmdir()
        return
    lock = try_lock(root / _LOCK)
    if lock is not None:
        _remove_locked(root)
        lock.release()


def _remove_unused(path: Path, lock_path: Path) -> None:
    """Remove a file if its lock is free."""
    lock = try_lock(lock_path)
    if lock is not None:
        path.unlink(missing_ok=True)
        lock.release()
