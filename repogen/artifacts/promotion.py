"""Reports of `repogen promote` and `repogen history`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import ExitCode

if TYPE_CHECKING:
    from repogen.artifacts.registry import AliasMove


class Verdict(Enum):
    """The verdict of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    RECORDED = "recorded"
    """Measured, without a limit."""
    NOT_APPLICABLE = "n/a"
    """The limit is relative to a champion, and there is none."""


@dataclass(frozen=True)
class GateResult:
    """One figure and its limit.

    Attributes:
        gate: Name of the figure, such as ``parity.max_abs_diff`` or ``latency.max_ratio``.
        measured: The figure as text; ``-`` if it was not measured.
        limit: The limit as text, such as ``<= 1.1``; empty without a limit.
        verdict: The verdict.
        note: Why it failed, or what to know about the figure.
        value: The figure; None if it was not measured.
    """

    gate: str
    measured: str
    limit: str
    verdict: Verdict
    note: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Ratio:
    """Candidate's time divided by the champion's, in the blocks of one alternating run.

    Attributes:
        value: Median of the blocks' ratios.
        low: Lower end of its 95% bootstrap interval.
        high: Upper end.
        blocks: Number of blocks.
    """

    value: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True)
class Timing:
    """Times in milliseconds: of single-row requests, or of whole bursts of them."""

    p50: float
    p95: float
    mean: float
    requests: int


@dataclass(frozen=True)
class Paired:
    """Times of the candidate and, if there is one, of the champion, measured alternately on one server.

    Attributes:
        candidate: Over all rounds.
        champion: The same; None without a champion.
        ratio: Candidate's time divided by the champion's: less is better; None without a champion.
    """

    candidate: Timing
    champion: Timing | None = None
    ratio: Ratio | None = None


class Outcome(Enum):
    """The outcome of a promotion or a rollback."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    ALREADY = "already"
    """The alias already pointed to the version; nothing was measured or moved."""
    WOULD_MOVE = "would move"
    """Every gate passed; with ``--dry-run`` the alias is not moved."""
    REFUSED = "refused"
    """A gate failed; the alias was not moved."""


@dataclass(frozen=True)
class StepMove:
    """The move of the alias of a model that a promoted ensemble uses.

    Attributes:
        model: The model.
        old: Version that the alias pointed to before; None if the model did not have the alias.
        new: Version that the ensemble was verified with.
    """

    model: str
    old: int | None
    new: int

    @property
    def moves(self) -> bool:
        """Whether the alias has to be moved."""
        return self.old != self.new


@dataclass(frozen=True)
class PromotionReport:
    """One promotion or rollback.

    Attributes:
        model: Registered model.
        alias: The alias.
        old: Version that it pointed to before; None if the alias did not exist.
        new: Version to move it to.
        outcome: The outcome.
        gates: One result per limit, in a fixed order.
        server: Human-readable description of the Triton; empty if none was started.
        indicative: Whether that server's times can differ from those in production.
        move: The recorded move; None if the alias was not moved.
        notes: Notes for the user.
        steps: The models that an ensemble uses, with the versions that it was verified with.
    """

    model: str
    alias: str
    old: int | None
    new: int
    outcome: Outcome
    gates: tuple[GateResult, ...] = ()
    server: str = ""
    indicative: bool = False
    move: AliasMove | None = None
    notes: tuple[str, ...] = ()
    steps: tuple[StepMove, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if a gate failed, else 0."""
        return int(ExitCode.GATE if self.outcome is Outcome.REFUSED else ExitCode.OK)


@dataclass(frozen=True)
class Period:
    """A period in which an alias pointed to one version.

    Attributes:
        alias: The alias.
        version: Registry version; None where the alias was deleted.
        since: Start in UTC, ISO 8601; empty if it was not recorded.
        until: End in UTC, ISO 8601; empty if it was not recorded, or has not ended.
        present: Whether the alias still points to the version.
        by: User who moved the alias; empty if it was not recorded.
        why: ``promote``, ``rollback`` or ``outside``, which is a move that repogen did not make.
        figures: Figures that the gates measured, as text.
        values: The numbers among them.
        ensemble: Ensemble and version, such as ``classify 3``, whose move this one followed; empty for its own.
    """

    alias: str
    version: int | None
    since: str
    until: str
    present: bool
    by: str
    why: str
    figures: dict[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    ensemble: str = ""


@dataclass(frozen=True)
class History:
    """The periods of a model's aliases.

    Attributes:
        model: Registered model.
        periods: By alias, oldest first.
    """

    model: str
    periods: tuple[Period, ...]
