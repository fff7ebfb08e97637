"""A program that mounts a small tmpfs in its own mount namespace, and runs commands while it is full or read-only."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.errors import PublishError, error_from_record
from repogen.registry.sync.sync import sync
from tests.support.published import Publisher
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = 400_000


def state(repository: Path) -> tuple[object, ...]:
    """Return versions, served versions and hold of `m`; every file is verified."""
    assert repogen.verify(repository).findings == ()
    (model,) = repogen.versions(repository=repository).models
    return tuple(version.version for version in model.versions), model.served, model.held


def fill(path: Path) -> None:
    """Use up all blocks."""
    with suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))


def commands(repository: Path, source: Path) -> list[Callable[[], object]]:
    """Return the commands that change a repository."""
    return [
        partial(repogen.rollback, "m", 3, repository=repository),
        partial(repogen.publish, "m", source=source, target=repository),
        partial(repogen.prune, keep=1, repository=repository),
    ]


def synced(registry: SimulatedRegistry, repository: Path) -> None:
    """Sync; the error of a version is raised."""
    report = sync(registry, repository, SyncOptions("champion"), Silent())
    for version in report.versions:
        if version.error is not None:
            raise error_from_record(version.error)


def fails(command: Callable[[], object]) -> bool:
    """Return whether a command fails with exit code 7."""
    try:
        command()
    except PublishError:
        return True
    return False


def mount(*arguments: str) -> None:
    """Run mount."""
    subprocess.run(["mount", *arguments], check=True)  # noqa: S607 - the system's


def main(disk: Path, other: Path) -> None:
    """Run every command on a full disk, on a read-only one, and again with space."""
    mount("-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk))
    publisher, source = Publisher(disk / "place" / "repo"), Publisher(other / "source" / "repo")
    for number in range(5):
        publisher.publish(weights=bytes([number]) * _SIZE, labels=(str(number), "b"))
    source.publish(weights=b"x" * _SIZE, labels=("x", "y"))
    rollback, publish, prune = commands(publisher.repository, source.repository)
    registry, copy = SimulatedRegistry(other / "registry"), disk / "copy" / "repo"
    registry.register(version_of_bytes(other / "built" / "1", weights=b"1" * _SIZE), "champion")
    update = partial(synced, registry, copy)
    update()
    registry.register(version_of_bytes(other / "built" / "2", weights=b"2" * _SIZE), "champion")

    before = state(publisher.repository)
    fill(disk / "full")
    assert fails(publish)
    assert fails(rollback)
    assert fails(update)
    assert state(copy) == ((1,), (1,), None)
    assert state(publisher.repository) == before
    assert len(repogen.prune(keep=4, repository=publisher.repository).deleted) == 1  # needs no space
    before = state(publisher.repository)
    assert before == ((5, 4, 3, 2), (5,), None)

    mount("-o", "remount,ro", str(disk))
    assert [fails(command) for command in (rollback, publish, prune, update)] == [True] * 4
    assert state(copy) == ((1,), (1,), None)
    assert state(publisher.repository) == before
    assert repogen.diff("m", repository=publisher.repository).sizes
    mount("-o", "remount,rw", str(disk))

    (disk / "full").unlink()
    assert not any(fails(command) for command in (rollback, publish, prune, update))
    assert state(copy)[1:] == ((2,), None)
    assert {path.name for path in copy.parent.iterdir()} == {"repo"}
    assert state(publisher.repository) == ((6, 5, 4, 3), (3,), 3)
    assert {path.name for path in publisher.repository.parent.iterdir()} == {"repo", "stage-of-repo"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
