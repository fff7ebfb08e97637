"""A command that is killed or fails at any operation leaves the old or the new state, whole; a rerun completes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import repogen
from repogen.errors import PublishError
from repogen.repository.filesystem import Disk
from repogen.repository.workspace import sweep
from tests.support.failing_disk import Failing
from tests.support.published import Publisher

from .killed_command import KilledAtAnyCall, run

if TYPE_CHECKING:
    from collections.abc import Callable

    State: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int | None]

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Scenario:
    """A command on model `m`, which has three versions that differ in signature, batching and named files.

    Attributes:
        command: The command.
        operations: Number of its operations on the filesystem.
        arguments: Its arguments.
        held: Version that is held before; None without a hold.
    """

    command: str
    operations: int
    arguments: dict[str, Any] = field(default_factory=dict)
    held: int | None = None


SCENARIOS = {
    "back": Scenario("rollback", 1),
    "back to other files": Scenario("rollback", 3, {"to": 1}),
    "further back": Scenario("rollback", 3, {"to": 1}, held=2),
    "prune": Scenario("prune", 2, {"keep": 1}),
    "prune under a hold": Scenario("prune", 1, {"keep": 1}, held=2),
    "publish": Scenario("publish", 1),
    "publish other files": Scenario("publish", 1, {"version": 1}),
    "publish under a hold": Scenario("publish", 1, held=2),
    "release": Scenario("rollback", 1, {"release": True}, held=2),
}
KILLS = [(name, at) for name, scenario in SCENARIOS.items() for at in range(scenario.operations + 1)]


def prepare(publisher: Publisher, scenario: Scenario) -> None:
    """Publish the versions, and hold one. Version 1's named files are missing from the model's directory."""
    publisher.publish(weights=b"1", batch=0, shape=(1, 3), labels=("a", "b"))
    publisher.publish(weights=b"2")
    publisher.publish(weights=b"3", policy="latest { num_versions: 1 }")
    if scenario.command == "publish":
        other = Publisher(publisher.repository.with_name("source"))
        other.publish(weights=b"5", shape=("batch", 9), labels=("e", "f"))
        other.publish(weights=b"6", shape=("batch", 7), policy="latest { num_versions: 1 }")
        shutil.rmtree(other.repository.with_name("stage-of-source"))
    if scenario.held is not None:
        repogen.rollback("m", scenario.held, repository=publisher.repository)
    for path in (*publisher.repository.glob("m/labels-*"), *publisher.repository.glob("m/warmup/*")):
        path.unlink()


def state(repository: Path) -> State:
    """Return versions, served versions and hold of `m`; every file is verified."""
    assert repogen.verify(repository).findings == ()
    (model,) = repogen.versions(repository=repository).models
    return tuple(version.version for version in model.versions), model.served, model.held


def program(scenario: Scenario, repository: Path, at: int) -> list[str]:
    """Return the command line of a program that runs the command and is killed at an operation."""
    job = {
        "command": scenario.command,
        "repository": str(repository),
        "arguments": scenario.arguments,
        "at": at,
    }
    return [sys.executable, "-m", "tests.unit.versions.killed_command", json.dumps(job)]


def killed(scenario: Scenario, repository: Path, at: int) -> int:
    """Run the command and kill it at an operation; return its exit code."""
    return subprocess.run(program(scenario, repository, at), cwd=ROOT, check=False).returncode


def require_whole(publisher: Publisher, scenario: Scenario, before: State, after: State) -> None:
    """Require the old or the new state, which Triton can serve, and that a rerun completes without leftovers.

    A completed rollback without a version is not run again: it would go back further.
    """
    current = state(publisher.repository)
    if scenario.command == "prune":  # each version is deleted by its own rename
        assert set(after[0]) <= set(current[0]) <= set(before[0])
        assert current[1:] == before[1:]
    else:
        assert current in {before, after}
    if current == before or scenario.arguments or scenario.command == "publish":
        run(scenario.command, publisher.repository, scenario.arguments, Disk())
    else:
        sweep(publisher.repository, None)  # as the next command does
    assert state(publisher.repository) == after
    names = {path.name for path in publisher.repository.parent.iterdir()}
    assert names - {"source"} == {"repo", "stage-of-repo"}
    assert {path.name for path in publisher.repository.iterdir()} == {".repogen.lock", "m", "repogen.json"}


@pytest.fixture
def after(tmp_path: Path) -> Callable[[Scenario], State]:
    """Return a function to the state after a command that is not interrupted."""

    def completed(scenario: Scenario) -> State:
        publisher = Publisher(tmp_path / "completed" / "repo")
        prepare(publisher, scenario)
        run(scenario.command, publisher.repository, scenario.arguments, Disk())
        return state(publisher.repository)

    return completed


@pytest.mark.parametrize(("name", "at"), KILLS)
def test_kill_at_an_operation(publisher: Publisher, after: Callable[[Scenario], State], name: str, at: int) -> None:
    """SIGKILL at any operation on the repository."""
    scenario = SCENARIOS[name]
    prepare(publisher, scenario)
    before = state(publisher.repository)
    code = killed(scenario, publisher.repository, at)
    assert code == (0 if at == scenario.operations else -signal.SIGKILL)
    require_whole(publisher, scenario, before, after(scenario))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", SCENARIOS)
def test_kill_at_any_call(tmp_path: Path, after: Callable[[Scenario], State], name: str) -> None:
    """SIGKILL before each call that changes the disk: in the staging directory, the repository, and the lock."""
    scenario, expected = SCENARIOS[name], after(SCENARIOS[name])
    template = Publisher(tmp_path / "template" / "repo")
    prepare(template, scenario)
    before = state(template.repository)
    at, status = 0, -signal.SIGKILL
    while status:
        place = tmp_path / str(at)
        shutil.copytree(template.repository.parent, place, symlinks=True)
        status = killed_in_fork(scenario, place / "repo", at)
        assert status in {0, -signal.SIGKILL}
        require_whole(Publisher(place / "repo"), scenario, before, expected)
        at += 1
    assert at > 20  # the hook counts


def killed_in_fork(scenario: Scenario, repository: Path, at: int) -> int:
    """Run the command in a fork, and kill it before a call that changes the disk; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            KilledAtAnyCall(at)
            run(scenario.command, repository, scenario.arguments, Disk())
            code = 0
        finally:
            os._exit(code)  # without the exit handlers of pytest
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("name", "at"), [(name, at) for name, at in KILLS if at < SCENARIOS[name].operations])
def test_full_disk_at_an_operation(publisher: Publisher, name: str, at: int, *, late: bool) -> None:
    """A full disk at any operation leaves the state unchanged, except for versions that were deleted before."""
    scenario = SCENARIOS[name]
    prepare(publisher, scenario)
    before = state(publisher.repository)
    with pytest.raises(PublishError, match="No space left on device"):
        run(scenario.command, publisher.repository, scenario.arguments, Failing(at, late=late))
    if scenario.command == "prune":
        before = (before[0][: len(before[0]) - at], *before[1:])
    assert state(publisher.repository) == before


def test_full_and_read_only_disk(tmp_path: Path) -> None:
    """On a real filesystem that is full or read-only, each command fails or completes, and a rerun completes."""
    (tmp_path / "disk").mkdir()
    namespace = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow mount namespaces")
    command = [sys.executable, "-m", "tests.unit.versions.small_disk", str(tmp_path / "disk"), str(tmp_path)]
    small_disk = subprocess.run([*namespace, *command], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (small_disk.returncode, small_disk.stderr) == (0, "")


@pytest.mark.full
def test_few_open_files(tmp_path: Path) -> None:
    """With too few open files, a command fails with a message and changes nothing; no file counts as damaged."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.versions.few_files", str(tmp_path)]
    few_files = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (few_files.returncode, few_files.stderr) == (0, "")


def test_commands_at_the_same_time(publisher: Publisher) -> None:
    """Each command completes, or fails because another one changed the model; the result is whole."""
    prepare(publisher, SCENARIOS["publish"])
    names = ["publish", "publish other files", "back to other files", "back", "prune", "prune", "release"]
    commands = [program(SCENARIOS[name], publisher.repository, 1000) for name in names]
    runs = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for command in commands]
    errors = [run.communicate()[1] for run in runs]
    # a prune deleted the version, or another command has published or served one with other shapes
    shapes = ("inputs or outputs differ", "do not match the new config.pbtxt")
    expected = ("another command changed the model", "has no version", "is damaged", *shapes)
    assert [error for error in errors if error and not any(text in error for text in expected)] == []
    numbers, served, _ = state(publisher.repository)
    assert set(served) <= set(numbers)
    assert len(served) == 1
