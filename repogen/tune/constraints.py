"""Constraints such as ``p99 < 20ms``, and durations such as ``10m``."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, cast

from repogen.artifacts.tune import Constraint
from repogen.errors import SpecError
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.artifacts.tune import MetricName

_EXAMPLES = 'write it as "p99 < 20ms", "throughput > 500" or "memory < 2GB"'
_CONSTRAINT = re.compile(
    r"\s*(?P<metric>[A-Za-z]\w*)\s*(?P<operator>[<>]=?)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-zµ/]*)\s*"
)
_MILLISECONDS = {"": 1.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1e3}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS: dict[str, dict[str, float]] = {
    **dict.fromkeys(("p50", "p95", "p99"), _MILLISECONDS),
    "throughput": {"": 1.0, "/s": 1.0},
    "memory": dict(_BYTES),
}
_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_MAX_SECONDS = 7 * 86_400.0


def parse_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Return the constraints in texts, each of which may have several, separated by commas.

    >>> [(each.metric, each.limit) for each in parse_constraints(["p99 < 20ms, memory<2GB", "throughput >= 500"])]
    [('p99', 20.0), ('memory', 2000000000.0), ('throughput', 500.0)]

    Raises:
        SpecError: A text is not a constraint, or two limit the same figure.
    """
    constraints = tuple(_constraint(part) for text in texts for part in text.split(","))
    metrics = [each.metric for each in constraints]
    if repeated := sorted({metric for metric in metrics if metrics.count(metric) > 1}):
        raise SpecError(f"two constraints limit {repeated[0]}", "keep the stricter one", code="tune.constraint")
    return constraints


def parse_duration(text: str) -> float:
    """Return the seconds of a duration.

    >>> [parse_duration(text) for text in ("10m", "90s", "1h30m", "45")]
    [600.0, 90.0, 5400.0, 45.0]

    Raises:
        SpecError: It is not a duration above 0 and up to 7 days.
    """
    match = _DURATION.fullmatch(text.strip())
    parts = {unit: value for unit, value in match.groupdict().items() if value} if match else {}
    seconds = sum(float(value) * _SECONDS[unit] for unit, value in parts.items())
    if not 0 < seconds <= _MAX_SECONDS:
        raise SpecError(
            f"{printable(text)!r} is not a duration above 0 and up to 7 days",
            "write it as 90s, 10m or 1h30m",
            code="tune.budget",
        )
    return seconds


def _constraint(text: str) -> Constraint:
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise _error(f"{printable(text.strip())!r} is not a constraint", _EXAMPLES)
    metric, unit, units = match["metric"].lower(), match["unit"], _UNITS.get(match["metric"].lower())
    if units is None:
        raise _error(f"{printable(match['metric'])!r} is not a metric that can be limited", f"use {', '.join(_UNITS)}")
    minimum = metric == "throughput"
    if match["operator"].startswith(">") is not minimum:
        operator = ">" if minimum else "<"
        raise _error(f"{printable(text.strip())!r} has the wrong operator", f"write {metric} {operator} NUMBER")
    scale = next((scale for name, scale in units.items() if name.lower() == unit.lower()), None)
    if scale is None:
        names = ", ".join(filter(None, units))
        raise _error(f"{printable(unit)!r} is not a unit of {metric}" if unit else f"{metric} needs a unit", names)
    limit = float(match["number"]) * scale
    if not 0 < limit < math.inf:
        raise _error(f"the limit of {metric} must be above 0", _EXAMPLES)
    return Constraint(cast("MetricName", metric), limit, " ".join(text.split()))


def _error(message: str, hint: str) -> SpecError:
    return SpecError(f"--constraint: {message}", hint, code="tune.constraint")
