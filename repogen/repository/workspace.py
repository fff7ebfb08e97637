"""A private directory beside the repository: what is built there becomes visible by renames, and only by them.

It lies outside the repository, because Triton takes every directory of a repository's root for a model, and on the
same filesystem, because a rename works only there. A lock on a file inside, held for the build's life, tells a running
build from one that died by `kill -9`: where the lock is free, the directory is removed by the next build.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from repogen.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOCK = "build.lock"
_ATTEMPTS = 100


def preflight(repository: Path, stage_dir: Path | None) -> None:
    """Raise now what would otherwise stop the build at its last step; leaves nothing behind.

    Args:
        repository: The model repository, which need not exist yet.
        stage_dir: Directory to stage in; None for the repository's parent.

    Raises:
        PublishError: The repository is no directory or cannot be written, or the staging directory lies inside it or
            where files cannot be renamed into it from.
    """
    repository = repository.resolve()
    parent = _stage_parent(repository, stage_dir)
    target, source = _existing(repository, "repository"), _existing(parent, "staging directory")
    if target.stat().st_dev != source.stat().st_dev:
        raise _other_filesystem(repository, parent)
    _probe(source, target, repository, parent)


@contextmanager
def prepare_stage_root(repository: Path, stage_dir: Path | None) -> Iterator[Path]:
    """Yield a private, empty root for one build, holding an empty ``repository/``; remove it afterwards.

    Args:
        repository: The model repository, which need not exist yet.
        stage_dir: Directory to stage in; None for the repository's parent.

    Yields:
        ``<parent>/.<repository's name>.repogen-stage/build-<id>``, on the repository's filesystem.

    Raises:
        PublishError: As ``preflight``.
    """
    repository = repository.resolve()
    preflight(repository, stage_dir)
    parent = _stage_parent(repository, stage_dir)
    made = [path for path in (parent, *parent.parents) if not path.exists()]
    container = parent / f".{repository.name}.repogen-stage"
    try:
        _sweep(container)
        try:
            root, lock = _create(container)
        except OSError as error:  # for example, another user's build made the container
            raise _not_writable(str(container), repository, error) from error
        try:
            private_repository(root).mkdir()
            yield root
        finally:
            # removed before the lock is let go: no other build need wonder whether it is dead
            shutil.rmtree(root, ignore_errors=True)
            os.close(lock)
    finally:
        for path in (container, *made):
            with suppress(OSError):  # another build, or the new repository, lives in it
                path.rmdir()


def private_repository(root: Path) -> Path:
    """Return the private model repository of a stage root."""
    return root / "repository"


def _stage_parent(repository: Path, stage_dir: Path | None) -> Path:
    if stage_dir is None:
        return repository.parent
    parent = stage_dir.resolve()
    if parent.is_relative_to(repository):
        raise PublishError(
            f"the staging directory {stage_dir} lies inside the model repository {repository}",
            "Give --stage-dir a directory outside of it: Triton takes every directory in a repository for a model.",
            code="stage.inside-repository",
        )
    return parent


def _existing(path: Path, what: str) -> Path:
    """Return ``path``, or the nearest parent that exists, where it will be made."""
    nearest = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    if not nearest.is_dir():
        raise PublishError(f"the {what} {path} cannot be made: {nearest} is no directory", code="stage.no-directory")
    return nearest


def _probe(source: Path, target: Path, repository: Path, parent: Path) -> None:
    """Rename a file from the one directory into the other: permissions, read-only and bind mounts all show in it.

    A file, because Triton ignores files in a repository's root; equal device numbers alone do not prove that a rename
    works (two bind mounts of one filesystem).
    """
    name = f".repogen-probe-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        (source / name).touch()
        (source / name).rename(target / name)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise _other_filesystem(repository, parent) from error
        raise _not_writable(f"{source} and {target}", repository, error) from error
    finally:
        for directory in (source, target):
            with suppress(OSError):  # where nothing can be written, removing what is not there fails as well
                (directory / name).unlink()


def _other_filesystem(repository: Path, parent: Path) -> PublishError:
    return PublishError(
        f"the staging directory {parent} is on another filesystem than the model repository {repository}, so a version "
        "could not be published by a rename",
        "Give --stage-dir a directory on the repository's filesystem, outside the repository (where the repository is "
        "itself a mount point, use a subdirectory of the mount as the repository).",
        code="stage.other-filesystem",
    )


def _not_writable(what: str, repository: Path, error: OSError) -> PublishError:
    return PublishError(
        f"{what} must be writable to publish into {repository}: {error.strerror}",
        "Mend the permissions, or choose other directories with --repository and --stage-dir.",
        code="stage.not-writable",
    )


def _create(container: Path) -> tuple[Path, int]:
    """Make and lock a build directory; a sweep by another build may take one away before it is locked."""
    for _ in range(_ATTEMPTS):
        container.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the other build removed the container, or the directory in it
            root = type(container)(tempfile.mkdtemp(prefix="build-", dir=container))
            lock = _lock(root)
            if lock is not None:
                root.chmod(
                    0o755
                )  # mkdtemp's is 0700, and a Triton that runs as another user reads the private repository
                return root, lock
    raise PublishError(f"{container} keeps being removed by another process", code="stage.contended")


def _lock(root: Path) -> int | None:
    """Return a descriptor that holds the directory's lock, or None while another process holds it."""
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == (root / _LOCK).stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        os.close(descriptor)
        raise PublishError(
            f"{root.parent} is on a filesystem without file locks: {error.strerror}",
            "Put the repository on a local filesystem, or on a network filesystem mounted with locking.",
            code="stage.no-locks",
        ) from error
    os.close(descriptor)
    return None


def _sweep(container: Path) -> None:
    """Remove what builds left that were killed: their lock is free."""
    for root in container.glob("build-*"):
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            lock = _lock(root)
            if lock is not None:
                shutil.rmtree(root, ignore_errors=True)
                os.close(lock)
