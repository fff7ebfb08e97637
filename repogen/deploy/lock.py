"""One deploy at a time to a server, from this machine; `rollout` detects the deploys of other machines."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from filelock import Timeout

from repogen.errors import PublishError, SmokeError, SpecError
from repogen.files import cache_directory
from repogen.repository.lock import file_lock, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from filelock import FileLock

    from repogen.artifacts.progress import Progress

WAIT_SECONDS = 600.0
"""How long to wait for another deploy without ``--timeout``."""


@contextmanager
def server_lock(address: str, seconds: float | None, progress: Progress) -> Iterator[None]:
    """Hold the lock of a server. The kernel releases it when the process ends.

    Args:
        address: The server, as it was passed: two names of one server have two locks.
        seconds: How long to wait for another deploy; None for the default.
        progress: Receives an event if there is another deploy.

    Raises:
        SmokeError: Another deploy held the lock for all that time.
    """
    lock = None
    with suppress(OSError, PublishError, SpecError):  # without a lock, a deploy of another process is still detected
        path = cache_directory(None) / "deploys" / f"{sha256(address.encode()).hexdigest()[:16]}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_lock(path) or _waited(path, address, WAIT_SECONDS if seconds is None else seconds, progress)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _waited(path: Path, address: str, seconds: float, progress: Progress) -> FileLock:
    progress.note("", f"waiting: another deploy to {address} is in progress")
    lock = file_lock(path, seconds)
    try:
        lock.acquire()
    except Timeout as error:
        raise SmokeError(
            f"{address}: another deploy by this user has been in progress for {seconds:g} s (it holds the lock {path})",
            "wait for it or stop it; the lock is released when the process ends",
            code="deploy.locked",
        ) from error
    return lock
