"""Two versions in turns on a clock of our own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.registry.gates.ab_timing import Schedule, alternate

if TYPE_CHECKING:
    from repogen.artifacts.promotion import Paired


@dataclass
class Machine:
    """A clock, and two versions that take their time on it; it becomes slower and slower."""

    drift: float = 0.0
    now: float = 0.0
    asked: str = ""
    hiccups: dict[int, float] = field(default_factory=dict)

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def take(self, name: str, seconds: float) -> None:
        """Answer a request."""
        self.asked += name
        self.now += seconds * (1 + self.drift * len(self.asked)) + self.hiccups.get(len(self.asked), 0.0)


def run(machine: Machine, a: float, b: float | None, schedule: Schedule) -> Paired:
    """Time ``a`` seconds against ``b``."""
    rival = None if b is None else lambda: machine.take("b", b)
    return alternate(lambda: machine.take("a", a), rival, schedule, machine.clock)


def test_rounds_go_in_turns_after_a_warm_up() -> None:
    """Each version is first and last as often, and both get as many requests as the slower one has time for."""
    machine = Machine()
    paired = run(machine, 0.01, 0.02, Schedule(blocks=2, round_seconds=0.041, warm_up=3))
    assert machine.asked == "aaa" + "bbb" + "aabbbbaa" + "bbaaaabb"
    assert (paired.candidate.requests, paired.champion.requests if paired.champion else 0) == (8, 8)


def test_the_ratio_is_exact_on_a_steady_machine() -> None:
    """Equal blocks have no spread."""
    ratio = run(Machine(), 0.03, 0.02, Schedule(blocks=5)).ratio
    assert ratio is not None
    assert [round(value, 6) for value in (ratio.low, ratio.value, ratio.high)] == [1.5, 1.5, 1.5]
    assert ratio.blocks == 5


def test_a_drift_of_the_machine_cancels_out() -> None:
    """A machine that becomes three times slower within the run makes equals equal still."""
    ratio = run(Machine(drift=0.01), 0.01, 0.01, Schedule(blocks=6, round_seconds=0.1)).ratio
    assert ratio is not None
    assert abs(ratio.value - 1) < 0.02


def test_a_hiccup_moves_neither_median_nor_ratio() -> None:
    """One request of ten seconds among many shows in the 95th percentile at most."""
    ratio = run(Machine(hiccups={30: 10.0}), 0.01, 0.01, Schedule(blocks=4)).ratio
    assert ratio is not None
    assert round(ratio.value, 6) == 1.0


def test_a_slow_model_gets_few_blocks_and_one_request_a_round() -> None:
    """The time limit ends the run after the least number of blocks."""
    schedule = Schedule(blocks=40, least_blocks=3, seconds=30)
    paired = run(Machine(), 10.0, 10.0, schedule)
    assert paired.ratio is not None
    assert (paired.ratio.blocks, paired.candidate.requests) == (3, 6)


def test_a_candidate_alone_is_timed_without_a_ratio() -> None:
    """There is nothing to divide by."""
    paired = run(Machine(), 0.01, None, Schedule(blocks=2))
    assert (paired.champion, paired.ratio) == (None, None)
    assert (round(paired.candidate.p50, 6), round(paired.candidate.p95, 6)) == (10.0, 10.0)
