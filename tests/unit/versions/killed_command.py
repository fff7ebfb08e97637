"""A program that runs one command and is killed by SIGKILL at its k-th operation of ``repogen.repository.filesystem``.

``KilledAtAnyCall`` kills a process before any call that changes a file or a directory, or writes it to the disk: `open`
for writing, rename, exchange, remove, mkdir, rmdir, link, symlink, chmod, fsync.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from repogen.artifacts.prune import PruneOptions
from repogen.artifacts.rollback import RollbackOptions
from repogen.artifacts.transfer import TransferOptions
from repogen.repository import filesystem
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.publish import publish
from repogen.versions.prune import prune
from repogen.versions.rollback import roll_back
from repogen.versions.transfer import transfer
from tests.unit.repository.publish.killed_publish import Killed

_CHANGES = frozenset(
    {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class KilledAtAnyCall:
    """Kills the process before its k-th call that changes the disk."""

    def __init__(self, at: int) -> None:
        """Count down from ``at``."""
        self._left = at
        sys.addaudithook(self._hook)
        self._fsync, os.fsync = os.fsync, self._synced  # not audited
        self._exchange, filesystem.Disk.exchange = filesystem.Disk.exchange, self._exchanged(Disk.exchange)  # type: ignore[method-assign]

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
            self._tick()

    def _synced(self, fd: Any) -> None:
        self._tick()
        self._fsync(fd)

    def _exchanged(self, exchange: Any) -> Any:
        def wrapped(disk: Disk, first: Path, second: Path) -> None:
            self._tick()
            exchange(disk, first, second)

        return wrapped

    def _tick(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(command: str, repository: Path, arguments: dict[str, Any], disk: Filesystem) -> None:
    """Run one command."""
    if command == "rollback":
        roll_back(repository, "m", RollbackOptions(**arguments), disk)
    elif command == "publish":
        source = repository.parent / "source"
        options = TransferOptions(allow_breaking=True, **arguments)
        transfer(source, repository, "m", options, partial(publish, filesystem=disk))
    elif command == "prune":
        prune(repository, (), PruneOptions(**arguments), lambda: None, disk)


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    run(job["command"], Path(job["repository"]), job["arguments"], Killed(job["at"]))
