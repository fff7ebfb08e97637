"""An ensemble and the versions of its steps that it was verified with change as one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.registry import EntryState
from repogen.artifacts.sync import SyncOptions, SyncReport
from repogen.registry.sync.sync import sync
from repogen.repository.filesystem import Disk
from repogen.repository.hold import hold_text
from repogen.repository.layout import archive_dir

from .conftest import contents, ensemble, served

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import RegistryEntry
    from tests.support.simulated_registry import SimulatedRegistry

    from .conftest import Register

CHAMPION = SyncOptions("champion")


def actions(report: SyncReport) -> list[tuple[str, str, int | None]]:
    """Return the model, action and version of each row."""
    return sorted((row.model, row.action.value, row.version) for row in report.versions)


def codes(report: SyncReport) -> dict[str, str]:
    """Return the code of each error by model."""
    return {row.model: row.error.code for row in report.versions if row.error is not None}


@pytest.fixture
def steps(register: Register) -> list[RegistryEntry]:
    """Register two versions of two steps, the first two with the alias."""
    entries = [register(name, b"1", "champion") for name in ("m", "n")]
    return [*entries, *(register(name, b"2") for name in ("m", "n"))]


def test_alias_of_the_ensemble_selects_its_steps(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """Steps need no alias; moving it back brings the steps back, and without it everything is removed."""
    for step in ("m", "n"):
        registry.point(step, "champion", None)
    register("a", b"1", "champion", steps=steps[:2])
    assert actions(sync(registry, repository, CHAMPION, Silent())) == [
        ("a", "published", 1), ("m", "published", 1), ("n", "published", 1)]  # fmt: skip
    register("a", b"2", "champion", steps=steps[2:])
    sync(registry, repository, CHAMPION, Silent())
    assert [served(repository, name) for name in ("a", "m", "n")] == [2, 2, 2]
    before = contents(repository)
    report = sync(registry, repository, CHAMPION, Silent())
    assert ({row.action.value for row in report.versions}, before) == ({"kept"}, contents(repository))
    registry.point("a", "champion", 1)
    sync(registry, repository, CHAMPION, Silent())
    assert [served(repository, name) for name in ("a", "m", "n")] == [1, 1, 1]
    registry.point("a", "champion", None)
    assert {row.action.value for row in sync(registry, repository, CHAMPION, Silent()).versions} == {"unserved"}


def test_alias_of_a_step_does_not_change_it(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """The note says why; without the ensemble, its own alias counts again."""
    register("a", b"1", "champion", steps=steps[:2])
    registry.point("m", "champion", 2)
    report = sync(registry, repository, CHAMPION, Silent())
    (row,) = (row for row in report.versions if row.model == "m")
    assert (row.version, row.note) == (1, "new; a was verified with this version; champion points to version 2")
    registry.point("a", "champion", None)
    sync(registry, repository, CHAMPION, Silent())
    assert [served(repository, name) for name in ("m", "n")] == [2, 1]


def test_option_model_syncs_the_set(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """An ensemble is never published without its steps, nor a step without the ensembles."""
    register("a", b"1", "champion", steps=steps[:2])
    register("other", b"1", "champion")
    for name in ("a", "m"):
        report = sync(registry, repository, SyncOptions("champion", (name,), dry_run=True), Silent())
        assert actions(report) == [("a", "published", 1), ("m", "published", 1), ("n", "published", 1)]


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_failure_of_one_changes_none(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry], damaged: int
) -> None:
    """Whichever download fails, and independent models are not affected."""
    register("a", b"1", "champion", steps=steps[:2])
    sync(registry, repository, CHAMPION, Silent())
    new = register("a", b"2", "champion", steps=steps[2:])
    register("other", b"1", "champion")
    entry = [new, *steps[2:]][damaged]
    (registry.artifacts(entry) / "model.onnx").write_bytes(b"spoiled")
    report = sync(registry, repository, CHAMPION, Silent())
    assert codes(report) == {entry.name: "tracking.artifacts"}
    assert [served(repository, name) for name in ("a", "m", "n", "other")] == [1, 1, 1, 1]
    notes = {row.note for row in report.versions if row.action.value == "ignored"}
    assert notes == {f"not changed: {entry.name} failed, and both are changed together"}


def test_missing_version_of_a_step(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """The set that is served is kept, although the alias of a step was deleted."""
    register("a", b"1", "champion", steps=steps[:2])
    sync(registry, repository, CHAMPION, Silent())
    register("a", b"2", "champion", steps=[replace(steps[2], content="0" * 64), steps[3]])
    registry.point("m", "champion", None)
    report = sync(registry, repository, CHAMPION, Silent())
    assert codes(report) == {"a": "tracking.step"}
    assert [served(repository, name) for name in ("a", "m", "n")] == [1, 1, 1]


def test_ensembles_that_need_different_versions_of_a_step(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """None of them changes until both were promoted; then all do."""
    for name in ("a", "b"):
        register(name, b"1", "champion", steps=steps[:2])
    sync(registry, repository, CHAMPION, Silent())
    for name in ("a", "b"):
        register(name, b"2", steps=steps[2:])
    registry.point("a", "champion", 2)
    report = sync(registry, repository, CHAMPION, Silent())
    assert codes(report) == dict.fromkeys(("a", "b"), "sync.shared-step")
    assert [served(repository, name) for name in ("a", "b", "m", "n")] == [1, 1, 1, 1]
    registry.point("b", "champion", 2)
    assert sync(registry, repository, CHAMPION, Silent()).exit_code == 0
    assert [served(repository, name) for name in ("a", "b", "m", "n")] == [2, 2, 2, 2]


def test_pending_ensemble_keeps_its_steps(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """Also if the alias of the steps moves on."""
    register("a", b"1", "champion", steps=steps[:2])
    sync(registry, repository, CHAMPION, Silent())
    register("a", b"2", "champion", steps=steps[2:], state=EntryState.PENDING)
    registry.point("m", "champion", 2)
    registry.point("n", "champion", None)
    report = sync(registry, repository, CHAMPION, Silent())
    assert {row.action.value for row in report.versions} == {"ignored"}
    assert [served(repository, name) for name in ("a", "m", "n")] == [1, 1, 1]


def test_ensemble_of_an_ensemble(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """Every model is served at the version that the outermost ensemble was verified with."""
    inner = register("inner", b"1", "champion", steps=steps[:1])
    register("outer", b"1", "champion", steps=[inner, steps[0]])
    register("inner", b"2", "champion", steps=steps[2:3])
    assert sync(registry, repository, CHAMPION, Silent()).exit_code == 0
    assert [served(repository, name) for name in ("outer", "inner", "m")] == [1, 1, 1]


def test_step_that_is_no_longer_used(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """It is archived after the ensemble changed."""
    registry.point("n", "champion", None)
    register("a", b"1", "champion", steps=steps[:2])
    sync(registry, repository, CHAMPION, Silent())
    register("a", b"2", "champion", steps=steps[2:3])
    moves: list[str] = []

    class Recorder(Disk):
        def rename(self, source: Path, target: Path) -> None:
            moves.append(f"{target.parent.resolve().name}/{target.name}")
            super().rename(source, target)

    assert actions(sync(registry, repository, CHAMPION, Silent(), Recorder())) == [
        ("a", "published", 2), ("m", "published", 2), ("n", "unserved", 1)]  # fmt: skip
    assert moves[-1] == f"{archive_dir(repository).name}/n"
    assert moves.index("a/config.pbtxt") > moves.index("m/config.pbtxt")


def test_step_with_a_version_of_another_repository(
    registry: SimulatedRegistry, register: Register, repository: Path
) -> None:
    """A pinned step version that differs from the registry's number is an error before anything is changed."""
    register("m", b"1", "champion")
    register("a", b"1", "champion", template=ensemble("m", version=7))
    report = sync(registry, repository, CHAMPION, Silent())
    assert codes(report) == {"a": "sync.no-step"}
    assert not (repository / "a").exists()


def test_held_ensemble_keeps_its_steps(
    registry: SimulatedRegistry, register: Register, repository: Path, steps: list[RegistryEntry]
) -> None:
    """Its artifacts are not even read."""
    register("a", b"1", "champion", steps=steps[:2])
    sync(registry, repository, CHAMPION, Silent())
    config = repository / "a" / "config.pbtxt"
    config.write_text(hold_text((repository / "a" / "1" / "config.pbtxt").read_text(), 1))
    new = register("a", b"2", "champion", steps=steps[2:])
    shutil.rmtree(registry.artifacts(new))
    report = sync(registry, repository, CHAMPION, Silent())
    assert (report.changed, report.exit_code) == (False, 0)
    assert [row.model for row in report.versions if row.held] == ["a"]
    assert [served(repository, name) for name in ("m", "n")] == [1, 1]
