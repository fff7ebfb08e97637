"""The alias of an ensemble moves with those of its steps, which cannot be promoted by themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.promotion import Outcome, PromotionReport, StepMove
from repogen.errors import GateError, TrackingError
from repogen.registry.gates.flags import with_flags
from repogen.registry.promotion.promote import history, promote, rollback
from repogen.registry.promotion.request import PromotionRequest
from repogen.reporting.registry_text import promotion_text
from repogen.spec.gates import GatesSpec
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.registry import AliasMove, RegistryEntry


@dataclass(frozen=True)
class Sets:
    """A registry of an ensemble ``e`` and its step ``m``."""

    registry: SimulatedRegistry
    directory: Path
    numbers: Iterator[int] = field(default_factory=count)

    def register(self, name: str, weights: bytes, *steps: RegistryEntry) -> RegistryEntry:
        """Register a version."""
        root = self.directory / str(next(self.numbers))
        pins = {step.name: step.content for step in steps}
        return self.registry.register(version_of_bytes(root, name, weights, steps=pins))

    def promote(self, name: str, version: int, *gates: str, dry_run: bool = False) -> PromotionReport:
        """Promote a version as champion, without a server."""
        active = with_flags(GatesSpec(), ("smoke=off", *gates))
        request = PromotionRequest(name, version, "champion", active, self.directory, dry_run=dry_run)
        return promote(self.registry, request, Silent())

    def champions(self) -> dict[str, int]:
        """Return the versions that the alias points to."""
        return {entry.name: entry.version for entry in self.registry.with_alias("champion")}


@pytest.fixture
def sets(tmp_path: Path) -> Sets:
    """Return two versions of the ensemble, each with its own version of the step."""
    result = Sets(SimulatedRegistry(tmp_path / "registry"), tmp_path)
    for weights in (b"1", b"22"):
        result.register("e", weights, result.register("m", weights))
    return result


def test_set_is_promoted_and_rolled_back(sets: Sets) -> None:
    """As one change in the history of each model; the text of the report names the steps."""
    sets.promote("e", 1)
    report = sets.promote("e", 2)
    assert (report.outcome, report.steps, sets.champions()) == (
        Outcome.PROMOTED, (StepMove("m", 1, 2),), {"e": 2, "m": 2})  # fmt: skip
    assert "with its steps: m version 1 -> 2" in promotion_text(report)
    report = rollback(sets.registry, "e", "champion")
    assert (report.outcome, report.steps, sets.champions()) == (
        Outcome.ROLLED_BACK, (StepMove("m", 2, 1),), {"e": 1, "m": 1})  # fmt: skip
    periods = history(sets.registry, "m").periods
    assert [(period.version, period.why, period.ensemble) for period in periods] == [
        (1, "promote", "e 1"), (2, "promote", "e 2"), (1, "rollback", "e 1")]  # fmt: skip
    (_, run) = sets.registry.runs
    assert run.tags["repogen.step.m"] == "2"


def test_size_is_that_of_the_steps(sets: Sets) -> None:
    """An ensemble has no weights of its own; the champion is measured with its own steps."""
    sets.promote("e", 1)
    report = sets.promote("e", 2, "size.max_ratio=1.5")
    assert (report.outcome, sets.champions()) == (Outcome.REFUSED, {"e": 1, "m": 1})
    assert {gate.gate: gate.value for gate in report.gates}["size.max_ratio"] == 1.5 + 0.5  # of steps only
    assert "with its steps" not in promotion_text(report)
    note = sets.registry.runs[-1].tags["mlflow.note.content"]
    assert note == "not promoted: version 2 failed 1 gate; champion of e still points to version 1"


def test_dry_run_moves_nothing(sets: Sets) -> None:
    """The report has what would move."""
    report = sets.promote("e", 1, dry_run=True)
    assert (report.outcome, report.steps, sets.champions()) == (Outcome.WOULD_MOVE, (StepMove("m", None, 1),), {})
    assert promotion_text(report).endswith("\nwith its steps: m version 1")


def test_step_is_promoted_with_its_ensemble(sets: Sets) -> None:
    """Neither a promotion nor a rollback moves a step away from the ensemble."""
    sets.promote("m", 2)
    sets.promote("m", 1)
    sets.promote("e", 1)
    for act in (partial(sets.promote, "m", 2), partial(rollback, sets.registry, "m", "champion")):
        with pytest.raises(GateError) as caught:
            act()
        assert (caught.value.code, "repogen promote e" in caught.value.hint) == ("promotion.step", True)
    assert sets.champions() == {"e": 1, "m": 1}


def test_set_in_the_order_of_the_output_of_a_build(sets: Sets) -> None:
    """The ensemble, which moves the alias of its step; then the step, whose alias is already there."""
    sets.promote("e", 1)
    assert [sets.promote(name, 2).outcome for name in "em"] == [Outcome.PROMOTED, Outcome.ALREADY]
    assert sets.champions() == {"e": 2, "m": 2}


def test_other_ensemble_with_the_same_step(sets: Sets) -> None:
    """The promotion is not rejected, because both could then never be promoted."""
    sets.promote("e", 1)
    (new, _) = sets.registry.entries("m")
    sets.register("f", b"f", new)
    report = sets.promote("f", 1)
    assert report.outcome is Outcome.PROMOTED
    (note,) = report.notes
    assert note == (
        "m: also used by e, whose version 1 was verified with another version; `repogen sync` changes neither ensemble "
        "until e is promoted as well"
    )


def test_interrupted_promotion_is_completed(sets: Sets) -> None:
    """The alias of the ensemble moves first; a step that could not be moved is a note, and moves with the next try."""
    move_alias = sets.registry.move_alias

    def fail_for_step(name: str, move: AliasMove) -> None:
        if name == "m":
            raise TrackingError("the server is down")
        move_alias(name, move)

    sets.registry.move_alias = fail_for_step  # type: ignore[method-assign]
    report = sets.promote("e", 1)
    assert (report.outcome, report.exit_code, sets.champions()) == (Outcome.PROMOTED, 0, {"e": 1})
    assert "champion of m was not moved to version 1: the server is down" in report.notes[0]
    sets.registry.move_alias = move_alias  # type: ignore[method-assign]
    assert sets.promote("e", 1).outcome is Outcome.ALREADY
    assert sets.champions() == {"e": 1, "m": 1}


def test_missing_version_of_a_step(sets: Sets) -> None:
    """Nothing is measured or moved."""
    (entry, *_) = sets.registry.entries("m")
    elsewhere = SimulatedRegistry(sets.directory / "elsewhere")
    elsewhere.register(version_of_bytes(sets.directory / "x", "e", b"x", steps={"m": entry.content}))
    with pytest.raises(TrackingError) as caught:
        Sets(elsewhere, sets.directory).promote("e", 1)
    assert caught.value.code == "tracking.step"
