"""What `repogen promote` and `repogen history` found and did; the console renders it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import ExitCode

if TYPE_CHECKING:
    from repogen.artifacts.registry import AliasMove


class Verdict(Enum):
    """What a gate says."""

    PASSED = "passed"
    FAILED = "failed"
    RECORDED = "recorded"
    """Measured, and no limit was asked for."""


@dataclass(frozen=True)
class GateResult:
    """One figure held against one limit.

    Attributes:
        gate: ``parity.max_abs_diff``, ``latency.max_ratio``, …; the name that ``--gate`` knows.
        measured: The figure for people; ``-`` when there is none.
        limit: For people, for example ``<= 1.1``; empty when there is none.
        verdict: The verdict.
        note: Why it failed, or what to know of the figure.
        value: The figure itself; None when there is none.
    """

    gate: str
    measured: str
    limit: str
    verdict: Verdict
    note: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Ratio:
    """Candidate over champion, block by block of one alternating run.

    Attributes:
        value: Median of the blocks' ratios.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
        blocks: Number of blocks.
    """

    value: float
    low: float
    high: float
    blocks: int


@dataclass(frozen=True)
class Timing:
    """Latency of single-row requests or, for bursts of them, the time of a whole burst; milliseconds."""

    p50: float
    p95: float
    mean: float
    requests: int


@dataclass(frozen=True)
class Paired:
    """Times of a candidate and, where there is one, of the champion on the same server in the same minute.

    Attributes:
        candidate: Over all rounds.
        champion: The same; None without a champion.
        ratio: Candidate's time over the champion's, so that less is better; None without a champion.
    """

    candidate: Timing
    champion: Timing | None = None
    ratio: Ratio | None = None


class Outcome(Enum):
    """What became of the alias."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    ALREADY = "already"
    """It pointed there before; nothing was measured or moved."""
    WOULD_MOVE = "would move"
    """Every gate passed, and ``--dry-run`` moved nothing."""
    REFUSED = "refused"
    """A gate failed; nothing was moved."""


@dataclass(frozen=True)
class PromotionReport:
    """One promotion or rollback.

    Attributes:
        model: Registered model.
        alias: The alias.
        old: Version it pointed to before; None when there was no such alias.
        new: Version it was to point to.
        outcome: What became of it.
        gates: One result a limit, in a fixed order.
        server: The Triton that was asked, for people; empty when none was.
        indicative: Whether that server's times only hint at production's.
        move: What the registry recorded; None when nothing moved.
        notes: Things a person should know.
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

    @property
    def exit_code(self) -> int:
        """1 when a gate failed, else 0."""
        return int(ExitCode.GATE if self.outcome is Outcome.REFUSED else ExitCode.OK)


@dataclass(frozen=True)
class Period:
    """A time in which an alias pointed to one version.

    Attributes:
        alias: The alias.
        version: Registry version; None where the alias was deleted.
        since: UTC, ISO 8601; empty when nobody recorded it.
        until: The same; empty when it lasts, or when nobody recorded its end.
        present: Whether it lasts.
        by: Who moved it there; empty when unknown.
        why: ``promote``, ``rollback`` or ``outside``.
        figures: What the gates measured.
    """

    alias: str
    version: int | None
    since: str
    until: str
    present: bool
    by: str
    why: str
    figures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """What served when.

    Attributes:
        model: Registered model.
        periods: By alias, oldest first.
    """

    model: str
    periods: tuple[Period, ...]
