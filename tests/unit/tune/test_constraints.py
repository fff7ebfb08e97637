"""Constraints and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.tune import Figures
from repogen.errors import SpecError
from repogen.tune.constraints import parse_constraints, parse_duration

LATENCY_UNITS = {"": 1.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1e3, "MS": 1.0}
MEMORY_UNITS = {"B": 1, "kb": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "gib": 2**30}
NUMBERS = st.decimals(min_value="0.001", max_value=10**9, places=3).map(str)
SPACES = st.sampled_from(["", " ", "  "])


@given(st.sampled_from(["p50", "p95", "p99", "P99"]), NUMBERS, st.sampled_from(sorted(LATENCY_UNITS)), SPACES)
def test_latency(metric: str, number: str, unit: str, space: str) -> None:
    """Milliseconds are the default; spaces and upper case do not matter."""
    [constraint] = parse_constraints([f"{space}{metric}{space}<{space}{number}{space}{unit}{space}"])

    assert constraint.metric == metric.lower()
    assert constraint.limit == pytest.approx(float(number) * LATENCY_UNITS[unit])


@given(NUMBERS, st.sampled_from(sorted(MEMORY_UNITS)), NUMBERS, st.sampled_from(["", "/s"]))
def test_memory_and_throughput(size: str, unit: str, rate: str, per_second: str) -> None:
    """Several constraints, in one text or in several."""
    together = parse_constraints([f"memory<={size}{unit},throughput > {rate}{per_second}"])
    apart = parse_constraints([f"memory<={size}{unit}", f"throughput > {rate}{per_second}"])

    assert together == apart
    memory, throughput = together
    assert memory.limit == pytest.approx(float(size) * MEMORY_UNITS[unit])
    assert throughput.limit == pytest.approx(float(rate))


@given(st.text(max_size=40))
def test_any_text_is_a_constraint_or_one_error(text: str) -> None:
    """No other exception."""
    error: SpecError | None = None
    try:
        parse_constraints([text])
    except SpecError as raised:
        error = raised
    assert error is None or (error.exit_code, error.code, bool(error.hint)) == (2, "tune.constraint", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99", "is not a constraint"),
        ("p98 < 20ms", "is not a metric that can be limited"),
        ("p99 > 20ms", "has the wrong operator"),
        ("throughput < 500", "has the wrong operator"),
        ("memory < 2", "memory needs a unit"),
        ("memory < 2ms", "is not a unit of memory"),
        ("p99 < 0ms", "must be above 0"),
        ("p99 < 20ms, p99 < 30ms", "two constraints limit p99"),
        ("p99 < 20ms,", "is not a constraint"),
    ],
)
def test_wrong_constraint(text: str, message: str) -> None:
    """The message names the mistake."""
    with pytest.raises(SpecError, match=message):
        parse_constraints([text])


def test_excess() -> None:
    """A minimum for the throughput, otherwise a maximum; the limit itself is kept."""
    figures = Figures(10.0, 20.0, 30.0, 400.0, 1_000_000)
    excesses = [
        constraint.excess(figures)
        for constraint in parse_constraints(["p50 < 10ms", "p95 < 10ms", "throughput > 500", "memory < 2MB"])
    ]

    assert excesses == pytest.approx([0.0, 1.0, 0.2, -0.5])


@given(st.integers(0, 20), st.integers(0, 59), st.integers(0, 59))
def test_duration(hours: int, minutes: int, seconds: int) -> None:
    """Any combination of units; zero is an error."""
    total = 3600 * hours + 60 * minutes + seconds
    texts = [f"{hours}h{minutes}m{seconds}s", f"{total}s", str(total)]
    if total:
        assert [parse_duration(text) for text in texts] == [total] * 3
    else:
        for text in texts:
            with pytest.raises(SpecError):
                parse_duration(text)


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-5s", "8d", "200h", "5m3h", "1e3"])
def test_wrong_duration(text: str) -> None:
    """The message has examples."""
    with pytest.raises(SpecError, match="is not a duration") as caught:
        parse_duration(text)
    assert "1h30m" in caught.value.hint
