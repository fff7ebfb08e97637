"""One publish at a time in a repository."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from repogen.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE = ".repogen.lock"


@contextmanager
def locked(repository: Path, seconds: float) -> Iterator[None]:
    """Hold the repository's lock, a file in its root, where Triton ignores files.

    It lies inside, not beside, so that two users who reach the repository by different mounts still meet at it. The
    kernel lets go of it when its holder dies; the empty file stays.

    Args:
        repository: An existing directory.
        seconds: How long to wait for another publish, which holds it for a few renames.

    Raises:
        PublishError: Another process held it all that time.
    """
    import filelock  # noqa: PLC0415 - brings asyncio along, which `unchanged` builds need not wait for

    path = repository / LOCK_FILE
    lock = filelock.FileLock(path, timeout=seconds)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise PublishError(
            f"another repogen has been publishing into {repository} for {seconds:g} s (it holds {path})",
            "Wait for it, or end it; the lock is freed when that process ends.",
            code="publish.locked",
        ) from error
    try:
        yield
    finally:
        lock.release()
