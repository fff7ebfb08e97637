"""Configs side by side, and the plot and files of a report."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from pydantic import TypeAdapter

from repogen.artifacts.bench import Machine
from repogen.artifacts.tune import Figures, Trial, TrialState, TuneReport
from repogen.errors import BenchError
from repogen.reporting.json_types import TuneDocument
from repogen.tune.comparison import compare, comparison_rows
from repogen.tune.constraints import parse_constraints
from repogen.tune.record import write_record
from repogen.tune.search import SearchPlan
from repogen.tune.space import Space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.tune import Objective


@dataclass
class Config:
    """A config with a fixed speed on a machine that becomes slower.

    Attributes:
        name: Its name.
        speed: Rows per second at first.
        calls: The measurements of all configs, in order.
        dies_after: Number of its measurements after which the server exits.
    """

    name: str
    speed: float
    calls: list[str] = field(default_factory=list)
    dies_after: int = 1000

    @contextmanager
    def open(self) -> Iterator[Config]:
        """Serve it."""
        if self.dies_after < 0:
            raise BenchError("not served", code="bench.not-served")
        yield self

    def measure(self, seconds: float) -> Figures:
        """Return figures; each measurement is 10% slower than the one before."""
        assert seconds > 0
        self.dies_after -= 1
        if self.dies_after < 0:
            raise BenchError("the server exited", code="bench.server-died")
        speed = self.speed * 0.9 ** len(self.calls)
        self.calls.append(self.name)
        return Figures(1000 / speed, 2000 / speed, 3000 / speed, speed, 10)


def plan(objective: Objective = "throughput") -> SearchPlan:
    """Return a plan with one constraint."""
    return SearchPlan(Space({}), objective, parse_constraints(["throughput > 120"]))


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_ratios_are_those_of_the_same_round(objective: Objective) -> None:
    """Rounds alternate in order; the drift of the machine does not hide a ratio of 2."""
    calls: list[str] = []
    configs = {name: Config(name, speed, calls).open for name, speed in (("tuned", 400), ("spec", 200), ("auto", 100))}

    rows = comparison_rows(compare(configs, 4, 1.0), plan(objective))

    assert calls == ["tuned", "spec", "auto", "auto", "spec", "tuned"] * 2
    assert [row.name for row in rows] == ["tuned", "spec", "auto"]
    assert rows[0].ratio is None
    assert rows[1].ratio is not None
    assert rows[1].ratio.low <= 2.0 <= rows[1].ratio.high
    assert [bool(row.violations) for row in rows] == [False, True, True]


def test_config_that_fails_is_left_out() -> None:
    """The others are compared, and the reason is known."""
    calls: list[str] = []
    configs = {
        "tuned": Config("tuned", 400, calls).open,
        "spec": Config("spec", 200, calls, dies_after=-1).open,
        "auto": Config("auto", 100, calls, dies_after=2).open,
    }

    result = compare(configs, 3, 1.0)

    assert {name: len(rounds) for name, rounds in result.rounds.items()} == {"tuned": 3}
    assert result.errors == {"spec": "not served", "auto": "the server exited"}


def test_files_of_a_report(tmp_path: Path) -> None:
    """tune.json has its type, and the SVG is one file without references to others."""
    trials = tuple(
        Trial(
            number, "search", {"instance_count": number}, TrialState.MEASURED, Figures(1.0, 2.0, number, 10.0 * number)
        )
        for number in (1, 2, 3)
    )
    report = TuneReport(
        *("m", 1, Path("r"), "Triton", Machine("CPU", 2, 2**30, 0.1, "Linux", {}), "throughput", (), 1, 16),
        space={"instance_count": (1, 2, 3)},
        trials=trials,
        pareto=(1, 2, 3),
        chosen=3,
    )

    recorded = write_record(report, tmp_path)

    assert [path.name for path in recorded.files] == ["tune.json", "pareto.vl.json", "pareto.svg"]
    document = json.loads(recorded.files[0].read_text(encoding="utf-8"))
    TypeAdapter(TuneDocument).validate_python(document)
    assert document["files"] == [str(path) for path in recorded.files]
    svg = recorded.files[2].read_text(encoding="utf-8")
    assert ET.fromstring(svg).tag.endswith("svg")  # noqa: S314 - written above
    assert "href" not in svg
    assert write_record(replace(report, trials=()), tmp_path / "other").files[1:] == ()


def test_link_in_place_of_a_report_is_replaced(tmp_path: Path) -> None:
    """A cloned project may contain one that leads to any file of the user."""
    victim = tmp_path / "victim"
    victim.write_text("kept", encoding="utf-8")
    link = tmp_path / "build" / "reports" / "tune" / "m" / "tune.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    machine = Machine("CPU", 2, 2**30, 0.1, "Linux", {})
    write_record(TuneReport("m", 1, Path("r"), "Triton", machine, "throughput", (), 1, 16, space={}), tmp_path)
    assert victim.read_text(encoding="utf-8") == "kept"
    assert json.loads(link.read_text(encoding="utf-8"))["model"] == "m"
