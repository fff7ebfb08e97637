"""A program that runs commands in forks that may open only a few files more, and compares the state of a repository."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api import registry as registry_api
from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.cli.group import main as command_line
from repogen.registry.sync.sync import sync
from repogen.repository.workspace import sweep
from tests.support.published import Publisher
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes
from tests.unit.versions.small_disk import state

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 16
"""Number of files that every command can open in addition to those that are open."""


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Let the process open only ``more`` files."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 64)  # a limit that is not too low for every command
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) < highest:  # until no lower number is free
        pass
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor + 1 + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def run(arguments: list[str], more: int, output: Path) -> int:
    """Run a command in a fork; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            with output.open("wb", buffering=0) as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
            with few_files(more):
                command_line(arguments, standalone_mode=False)
            code = 0
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check(arguments: list[str], repository: Path, output: Path, before: object) -> None:
    """Run a command with more and more files, until it completes; it changes nothing until then."""
    with suppress(SystemExit), redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # imports what it needs
        command_line([*arguments, "--dry-run"], standalone_mode=False)
    for more in range(_MOST + 1):
        code = run(arguments, more, output)
        text = output.read_text()
        if code == 0:
            assert state(repository) != before, text
            return
        assert code in {2, 7, 8}, (more, code, text)
        is_of_registry = "artifacts do not exist" in text  # its downloads have a message of their own
        assert is_of_registry or "too many open files" in text.lower(), (more, code, text)
        assert "Traceback" not in text, text
        assert state(repository) == before, (more, text)
    raise AssertionError(f"{arguments} needs more than {_MOST} files")


def main(home: Path) -> None:
    """Run every command."""
    target, source = Publisher(home / "place" / "repo"), Publisher(home / "source" / "repo")
    for number in range(3):
        target.publish(weights=bytes([number]), labels=(str(number), "b"))
    source.publish(weights=b"x", labels=("x", "y"))
    output, place = home / "output", ["--repository", str(target.repository)]
    published = ["publish", "m", "--from", str(source.repository), "--to", str(target.repository)]
    for arguments in (published, ["prune", "--keep", "2", *place], ["rollback", "m", "--to", "3", *place]):
        check(arguments, target.repository, output, state(target.repository))

    registry, synced = SimulatedRegistry(home / "registry"), home / "synced" / "repo"
    registry.register(version_of_bytes(home / "built" / "1", weights=b"1"), "champion")
    sync(registry, synced, SyncOptions("champion"), Silent())
    registry.register(version_of_bytes(home / "built" / "2", weights=b"2"), "champion")
    vars(registry_api)["open_registry"] = lambda *_: registry  # instead of MLflow
    check(["sync", "--repository", str(synced), "--alias", "champion"], synced, output, state(synced))
    # as the next command of any kind, with enough files, which removes what others left
    sweep(target.repository, None)
    sweep(synced, None)
    assert {path.name for path in target.repository.parent.iterdir()} == {"repo", "stage-of-repo"}
    assert {path.name for path in synced.parent.iterdir()} == {"repo"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
