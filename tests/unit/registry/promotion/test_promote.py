"""Promotion, rollback and history with a simulated registry, and gates that do not need a Triton."""

from __future__ import annotations

import os
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.api import registry as api
from repogen.artifacts.progress import Silent
from repogen.artifacts.promotion import Outcome, PromotionReport
from repogen.artifacts.registry import EntryState
from repogen.errors import ExitCode, GateError, RepogenError, SpecError, TrackingError
from repogen.registry.gates.flags import with_flags
from repogen.registry.promotion.promote import history, promote, rollback
from repogen.registry.promotion.request import PromotionRequest
from repogen.spec.gates import GatesSpec
from repogen.spec.models import ModelSpec, Spec
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.registry import AliasMove, RegistryEntry

    Register = Callable[..., RegistryEntry]

MODEL = ModelSpec.model_validate({"source": {"factory": "models.py:build"}})
NO_ROOT = Path("nowhere")
"""A root that does not exist: no gate of these tests reads a file."""


@pytest.fixture
def registry(tmp_path: Path) -> SimulatedRegistry:
    """Return an empty registry."""
    return SimulatedRegistry(tmp_path / "registry")


@pytest.fixture
def register(registry: SimulatedRegistry, tmp_path: Path) -> Register:
    """Return a function that registers a version of ``m`` with a number of bytes."""
    roots = (tmp_path / f"stage-{n}" for n in count())

    def make(size: int = 1, *aliases: str, state: EntryState = EntryState.PUBLISHED) -> RegistryEntry:
        return registry.register(version_of_bytes(next(roots), weights=b"w" * size), *aliases, state=state)

    return make


def promoted(
    registry: SimulatedRegistry, version: int | None = None, *gates: str, alias: str = "champion", dry_run: bool = False
) -> PromotionReport:
    """Promote with gates that only read manifests."""
    active = with_flags(GatesSpec(), ("smoke=off", *gates))
    return promote(registry, PromotionRequest("m", version, alias, active, NO_ROOT, dry_run=dry_run), Silent())


def champion(registry: SimulatedRegistry) -> int | None:
    """Return the version that the alias points to."""
    return next((entry.version for entry in registry.entries("m") if "champion" in entry.aliases), None)


def test_move_records_user_time_and_figures(
    registry: SimulatedRegistry, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In GitHub Actions the user is the actor."""
    monkeypatch.setenv("GITHUB_ACTOR", "ann")
    register(1, "champion")
    register(2)
    report = promoted(registry, 2, "size.max_ratio=3")
    (move,) = registry.moves("m")
    assert (Outcome.PROMOTED, move) == (report.outcome, report.move)
    assert (move.alias, move.old, move.new, move.by, move.why) == ("champion", 1, 2, "ann", "promote")
    assert move.at.endswith("+00:00")
    assert move.figures["size.max_ratio"] == "2.000, to version 1's 9.54e-07 MB [<= 3]"
    assert move.values["size.max_ratio"] == 2.0
    (run,) = registry.runs
    assert (run.name, run.passed) == ("promote m version 2 to champion", True)
    assert run.metrics["gate/size.max_ratio"] == 2.0
    assert run.tags.items() >= {"repogen.outcome": "promoted", "repogen.champion": "1"}.items()


def test_a_failed_gate_moves_nothing(registry: SimulatedRegistry, register: Register) -> None:
    """The exit code is 1."""
    register(1, "champion")
    register(2)
    report = promoted(registry, 2, "size.max_ratio=1.5")
    assert (report.outcome, report.exit_code, report.move) == (Outcome.REFUSED, ExitCode.GATE, None)
    assert (champion(registry), registry.moves("m")) == (1, ())
    (run,) = registry.runs
    assert (run.passed, run.tags["repogen.gate.size.max_ratio"]) == (False, "failed")
    assert "size.max\\_ratio" in run.page


def test_promotion_without_a_run_is_noted(registry: SimulatedRegistry, register: Register) -> None:
    """The alias has moved: a failure to record the run does not fail the promotion."""
    register()
    registry.record = partial(_fail, registry)  # type: ignore[method-assign]
    report = promoted(registry)
    assert (report.outcome, champion(registry)) == (Outcome.PROMOTED, 1)
    assert report.notes == ("the promotion could not be logged to MLflow: the server is down",)


def _fail(*_: object) -> None:
    raise TrackingError("the server is down")


def test_limit_relative_to_a_missing_champion(registry: SimulatedRegistry, register: Register) -> None:
    """The limit does not apply, which is not the same as passing it."""
    register()
    report = promoted(registry, 1, "size.max_ratio=1.5")
    verdicts = {gate.gate: gate.verdict.value for gate in report.gates}
    assert (report.outcome, verdicts["size.max_ratio"]) == (Outcome.PROMOTED, "n/a")


def test_a_dry_run_moves_nothing(registry: SimulatedRegistry, register: Register) -> None:
    """The outcome is what would happen."""
    register()
    report = promoted(registry, dry_run=True)
    assert (report.outcome, report.old, report.new) == (Outcome.WOULD_MOVE, None, 1)
    assert champion(registry) is None
    assert registry.runs == []


def test_current_champion_is_not_measured(registry: SimulatedRegistry, register: Register) -> None:
    """Although it would fail a limit."""
    register(9, "champion")
    report = promoted(registry, 1, "size.max_mb=0.000001")
    assert (report.outcome, report.exit_code, report.gates) == (Outcome.ALREADY, ExitCode.OK, ())
    assert registry.moves("m") == ()


def test_the_newest_published_version_is_the_default(registry: SimulatedRegistry, register: Register) -> None:
    """Pending and foreign versions are skipped, with a note."""
    register()
    register(2, state=EntryState.PENDING)
    registry.register_foreign("m")
    report = promoted(registry)
    assert (report.new, report.outcome) == (1, Outcome.PROMOTED)
    assert report.notes == (
        "version 3 was skipped: it was not built by repogen",
        "version 2 was skipped: it is pending",
    )


@pytest.mark.parametrize(("version", "code"), [(2, "promotion.pending"), (3, "promotion.foreign")])
def test_pending_or_foreign_version_is_rejected(
    registry: SimulatedRegistry, register: Register, version: int, code: str
) -> None:
    """The hint is to build it."""
    register()
    register(2, state=EntryState.PENDING)
    registry.register_foreign("m")
    with pytest.raises(GateError) as caught:
        promoted(registry, version)
    assert (code, True) == (caught.value.code, "repogen build" in caught.value.hint)


@pytest.mark.parametrize(
    ("version", "alias", "code"),
    [(9, "champion", "promotion.no-such-version"), (1, "latest", "promotion.alias"), (1, "v3", "promotion.alias"),
     (1, "a b", "promotion.alias"), (1, "", "promotion.alias")],
)  # fmt: skip
def test_unknown_version_or_invalid_alias_is_a_usage_error(
    registry: SimulatedRegistry, register: Register, version: int, alias: str, code: str
) -> None:
    """Exit 2."""
    register()
    with pytest.raises(SpecError) as caught:
        promoted(registry, version, alias=alias)
    assert code == caught.value.code


class RacingRegistry(SimulatedRegistry):
    """A registry in which another user moves the alias during a download."""

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Move the alias, and download."""
        self.point("m", "champion", 1)
        return super().fetch(entry, directory)


def test_alias_that_was_moved_meanwhile_is_not_moved(tmp_path: Path) -> None:
    """The registry rejects the move, and does not record it."""
    registry = RacingRegistry(tmp_path / "registry")
    for n in range(3):
        registry.register(version_of_bytes(tmp_path / str(n), weights=b"w" * n), *(("champion",) if n == 1 else ()))
    with pytest.raises(TrackingError, match="moved in the meantime"):
        promoted(registry, 3)
    assert (champion(registry), registry.moves("m")) == (1, ())


def test_modified_artifacts_are_not_promoted(registry: SimulatedRegistry, register: Register) -> None:
    """The registry reports them."""
    entry = register()
    (registry.artifacts(entry) / "model.onnx").write_bytes(b"x")
    with pytest.raises(TrackingError):
        promoted(registry)
    assert champion(registry) is None


@pytest.mark.parametrize("calls", range(4))
def test_registry_failure_does_not_move_the_alias(registry: SimulatedRegistry, register: Register, calls: int) -> None:
    """For a failure of each call; the move is not recorded either."""
    register(1, "champion")
    register(2)
    request = PromotionRequest("m", 2, "champion", with_flags(GatesSpec(), ("smoke=off", "size.max_ratio=9")), NO_ROOT)
    registry.calls_left = calls
    with pytest.raises(TrackingError):
        promote(registry, request, Silent())
    registry.calls_left = None
    assert (champion(registry), registry.moves("m")) == (1, ())


def test_consecutive_rollbacks(registry: SimulatedRegistry, register: Register) -> None:
    """Two of them go two versions back; a third one fails."""
    for size in (1, 2, 3):
        register(size)
        promoted(registry, size)
    assert [rollback(registry, "m", "champion").new for _ in range(2)] == [2, 1]
    assert (error_code(lambda: rollback(registry, "m", "champion")), champion(registry)) == (
        "promotion.nothing-before",
        1,
    )
    assert [move.why for move in registry.moves("m")] == ["promote"] * 3 + ["rollback"] * 2


def error_code(act: Callable[[], object]) -> str:
    """Return the code of the error that ``act`` raises."""
    with pytest.raises(RepogenError) as caught:
        act()
    return caught.value.code


def test_rollback_does_not_measure_gates(registry: SimulatedRegistry, register: Register) -> None:
    """Artifacts are not downloaded: they may be missing."""
    for size in (1, 2):
        entry = register(size)
        promoted(registry, size)
        (registry.artifacts(entry) / "manifest.json").unlink()
    report = rollback(registry, "m", "champion")
    assert (report.outcome, champion(registry), report.gates) == (Outcome.ROLLED_BACK, 1, ())
    assert report.notes[0] == "no gates were measured, because the version was served before"
    assert report.notes[1].startswith("its files could not be read, so the aliases of steps are not moved")


def test_dry_run_of_a_rollback(registry: SimulatedRegistry, register: Register) -> None:
    """It reports the version and does not move the alias."""
    for size in (1, 2):
        register(size)
        promoted(registry, size)
    report = rollback(registry, "m", "champion", dry_run=True)
    assert (report.outcome, report.new, champion(registry)) == (Outcome.WOULD_MOVE, 1, 2)


class IncompleteRegistry(SimulatedRegistry):
    """A registry from which version 1 was deleted."""

    def entries(self, name: str) -> tuple[RegistryEntry, ...]:
        """Return all but the first."""
        return tuple(entry for entry in super().entries(name) if entry.version != 1)


def test_rollback_to_a_deleted_version_fails(tmp_path: Path) -> None:
    """The alias is not moved."""
    registry = IncompleteRegistry(tmp_path / "registry")
    for n in range(2):
        registry.register(version_of_bytes(tmp_path / str(n), weights=b"w" * n), *(("champion",) if n == 0 else ()))
    registry.point("m", "champion", 1)
    registry.move_alias("m", _move(1, 2))
    assert error_code(lambda: rollback(registry, "m", "champion")) == "promotion.version-deleted"
    assert champion(registry) == 2


def _move(old: int, new: int) -> AliasMove:
    from repogen.artifacts.registry import AliasMove as Move  # noqa: PLC0415 - one use

    return Move("champion", old, new, "ann", "2026-01-01T00:00:00+00:00", "promote", {})


def test_rollback_without_the_alias_fails(registry: SimulatedRegistry, register: Register) -> None:
    """With an error code of its own, and the aliases that exist."""
    register()
    registry.point("m", "prod", 1)
    with pytest.raises(GateError) as caught:
        rollback(registry, "m", "champion")
    assert (caught.value.code, caught.value.hint) == ("promotion.no-alias", "its aliases are: prod")


def test_history_has_moves_outside_of_repogen(registry: SimulatedRegistry, register: Register) -> None:
    """A rollback moves the alias back to the version that repogen set, with a note."""
    for size in (1, 2):
        register(size)
    promoted(registry, 1)
    registry.point("m", "champion", 2)
    registry.point("m", "canary", 2)
    result = [(period.alias, period.version, period.present, period.why) for period in history(registry, "m").periods]
    assert result == [
        ("canary", 2, True, "outside"),
        ("champion", 1, False, "promote"),
        ("champion", 2, True, "outside"),
    ]
    assert rollback(registry, "m", "champion").notes[-1] == "the alias was moved to version 2 outside of repogen"
    assert [period.version for period in history(registry, "m", "champion").periods] == [1, 2, 1]


@pytest.mark.parametrize(
    ("name", "alias", "code"),
    [("n", None, "promotion.no-such-model"), ("m", "canary", "promotion.no-such-alias")],
)
def test_history_of_an_unknown_model_or_alias_is_an_error(
    registry: SimulatedRegistry, register: Register, name: str, alias: str | None, code: str
) -> None:
    """It is an error, not an empty table."""
    register()
    assert code == error_code(lambda: history(registry, name, alias))


@pytest.mark.parametrize(
    ("name", "hint"), [("digit", 'did you mean "digits"?'), ("digits", "registers models"), ("x", "registers models")]
)
def test_name_that_is_similar_to_one_in_the_spec(
    registry: SimulatedRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    """It is suggested if the registry does not have the model, which need not be in the spec."""
    monkeypatch.setattr(api, "open_registry", lambda *_: registry)
    spec = Spec(tmp_path / "repogen.yaml", tmp_path, "24.10", None, {"digits": MODEL}, {})
    with pytest.raises(SpecError, match="the registry does not have a model") as caught:
        api.promote(name, spec=spec, spec_required=False)
    assert hint in caught.value.hint


def test_missing_file_of_an_evaluation_gate_is_reported_before_any_download(
    registry: SimulatedRegistry, register: Register, tmp_path: Path
) -> None:
    """The file of the callable, and the data."""
    register()
    (tmp_path / "g.py").write_text("def f(predict, data): return 1.0\n", encoding="utf-8")
    (tmp_path / "private").touch()
    (tmp_path / "link.npz").symlink_to("private")
    os.chown(tmp_path / "link.npz", 65534, -1, follow_symlinks=False)
    codes = []
    for flags in (
        ("evaluation=h.py:f",),
        ("evaluation=g.py:f", "evaluation.data=h.npz"),
        ("evaluation=g.py:f", "evaluation.data=link.npz"),
    ):
        request = PromotionRequest("m", None, "champion", with_flags(GatesSpec(), flags), tmp_path)
        codes.append(error_code(lambda: promote(registry, request, Silent())))  # noqa: B023 - called at once
    assert codes == ["promotion.evaluation-callable", "promotion.evaluation-data", "foreign-link"]
