"""Alternating measurements of two versions, on a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.registry.gates.ab_timing import Schedule, alternate

if TYPE_CHECKING:
    from repogen.artifacts.promotion import Paired


@dataclass
class Machine:
    """A clock, and two versions that run on it; it may become slower, or pause."""

    drift: float = 0.0
    now: float = 0.0
    requests: str = ""
    pauses: dict[int, float] = field(default_factory=dict)

    def clock(self) -> float:
        """Return seconds."""
        return self.now

    def take(self, name: str, seconds: float) -> None:
        """Process a request."""
        self.requests += name
        self.now += seconds * (1 + self.drift * len(self.requests)) + self.pauses.get(len(self.requests), 0.0)


def run(machine: Machine, a: float, b: float | None, schedule: Schedule) -> Paired:
    """Time ``a`` seconds against ``b``."""
    champion = None if b is None else lambda: machine.take("b", b)
    return alternate(lambda: machine.take("a", a), champion, schedule, machine.clock)


def test_order_of_rounds() -> None:
    """After a warm-up, each version is first and last equally often; the slower one decides the number of requests."""
    machine = Machine()
    paired = run(machine, 0.01, 0.02, Schedule(blocks=2, round_seconds=0.041, warm_up=3))
    assert machine.requests == "aaa" + "bbb" + "aabbbbaa" + "bbaaaabb"
    assert (paired.candidate.requests, paired.champion.requests if paired.champion else 0) == (8, 8)


def test_the_ratio_is_exact_on_a_steady_machine() -> None:
    """The interval is empty if all blocks are equal."""
    ratio = run(Machine(), 0.03, 0.02, Schedule(blocks=5)).ratio
    assert ratio is not None
    assert [round(value, 6) for value in (ratio.low, ratio.value, ratio.high)] == [1.5, 1.5, 1.5]
    assert ratio.blocks == 5


def test_a_drift_of_the_machine_cancels_out() -> None:
    """The machine becomes three times slower during the run."""
    ratio = run(Machine(drift=0.01), 0.01, 0.01, Schedule(blocks=6, round_seconds=0.1)).ratio
    assert ratio is not None
    assert abs(ratio.value - 1) < 0.02


def test_a_pause_changes_neither_median_nor_ratio() -> None:
    """One request of ten seconds is an outlier."""
    ratio = run(Machine(pauses={30: 10.0}), 0.01, 0.01, Schedule(blocks=4)).ratio
    assert ratio is not None
    assert round(ratio.value, 6) == 1.0


def test_slow_model_gets_few_blocks_of_one_request_per_round() -> None:
    """The time limit ends the run after the smallest number of blocks."""
    schedule = Schedule(blocks=40, least_blocks=3, seconds=30)
    paired = run(Machine(), 10.0, 10.0, schedule)
    assert paired.ratio is not None
    assert (paired.ratio.blocks, paired.candidate.requests) == (3, 6)


def test_candidate_without_champion_has_no_ratio() -> None:
    """Only its own times are measured."""
    paired = run(Machine(), 0.01, None, Schedule(blocks=2))
    assert (paired.champion, paired.ratio) == (None, None)
    assert (round(paired.candidate.p50, 6), round(paired.candidate.p95, 6)) == (10.0, 10.0)
