"""The data of plots: rows of a table with a mark on a common scale, and points in a plane."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from repogen.reporting.html.scales import linear, logarithmic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from repogen.reporting.html.scales import Scale

MAX_ROWS = 60
"""Rows of a plot; what follows is counted in a note."""
_LABEL_WIDTH = 12
"""Of a label in a plot, in percent of its width on a phone."""
_LABEL_HEIGHT = 8
"""The same in percent of its height."""


@dataclass(frozen=True)
class Row:
    """One row: its label, the value as text, and where its mark is.

    Attributes:
        label: What the row is about.
        text: Its value.
        position: Of the mark, in percent; None for no mark.
        low: Start of an interval around it; None for no interval.
        high: End of the interval.
        bad: Whether it is marked as a failure.
    """

    label: str
    text: str
    position: float | None
    low: float | None = None
    high: float | None = None
    bad: bool = False


@dataclass(frozen=True)
class RowChart:
    """A table whose rows have a mark on a common scale.

    Attributes:
        caption: What it shows.
        heading: Heading of the labels.
        unit: Heading of the values.
        scale: The scale.
        rows: The rows.
        mark: Bars start at 0, dots do not.
        limit: Position of a line that marks a limit; None if there is no limit.
        limit_text: What the line is.
        omitted: Number of rows that were left out.
    """

    kind: ClassVar = "rows"
    caption: str
    heading: str
    unit: str
    scale: Scale
    rows: tuple[Row, ...]
    mark: Literal["bar", "dot"] = "bar"
    limit: float | None = None
    limit_text: str = ""
    omitted: int = 0


@dataclass(frozen=True)
class Point:
    """A point of a series.

    Attributes:
        x: Value, and in a plot the position in percent from the left.
        y: Value, and in a plot the position in percent from the top.
        label: Text next to it; may be empty.
        cells: Its row of the table, without the name of the series.
    """

    x: float
    y: float
    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes:
        name: Name for the legend.
        points: The points, in order.
        number: Color and marker, from 1.
        line: Whether consecutive points are connected.
    """

    name: str
    points: tuple[Point, ...]
    number: int
    line: bool = True


@dataclass(frozen=True)
class Plane:
    """A plot of points in a plane, and the table behind it.

    Attributes:
        caption: What it shows.
        x_title: Quantity and unit of the horizontal axis.
        y_title: The same of the vertical axis.
        x: The horizontal scale.
        y: The vertical scale.
        series: The points.
        headings: Headings of the table: the first is the series.
        numeric: Columns of numbers, from 0.
    """

    kind: ClassVar = "plane"
    caption: str
    x_title: str
    y_title: str
    x: Scale
    y: Scale
    series: tuple[Series, ...]
    headings: tuple[str, ...]
    numeric: frozenset[int] = frozenset()

    @property
    def grid(self) -> tuple[float, ...]:
        """Positions of the horizontal lines, from the top."""
        return tuple(100 - tick.position for tick in self.y.ticks)


@dataclass(frozen=True)
class Value:
    """A value of a row chart, before its position is known."""

    label: str
    number: float | None
    text: str
    interval: tuple[float, float] | None = None
    bad: bool = False


@dataclass(frozen=True)
class Axis:
    """What a row chart measures.

    Attributes:
        caption: What it shows.
        heading: Heading of the labels.
        unit: Heading of the values.
        mark: Bars on a linear scale, dots on a logarithmic one.
        limit: A limit to mark on the scale; None if there is no limit.
        limit_text: What the limit is.
    """

    caption: str
    heading: str
    unit: str
    mark: Literal["bar", "dot"] = "bar"
    limit: float | None = None
    limit_text: str = ""


def row_chart(axis: Axis, values: Sequence[Value]) -> RowChart:
    """Return a chart of values; numbers that are not finite get no mark."""
    first = values[:MAX_ROWS]
    scale = (logarithmic if axis.mark == "dot" else linear)(_all_numbers(axis, first))
    return RowChart(
        axis.caption,
        axis.heading,
        axis.unit,
        scale,
        tuple(_row(value, scale) for value in first),
        axis.mark,
        None if axis.limit is None else scale.position(axis.limit),
        axis.limit_text,
        len(values) - len(first),
    )


def plane(
    texts: tuple[str, str, str],
    headings: tuple[str, ...],
    series: Sequence[Series],
    numeric: frozenset[int],
    scale: Callable[[Iterable[float]], Scale] = linear,
) -> Plane:
    """Return a plot of points.

    Args:
        texts: Caption, and the titles of the horizontal and of the vertical axis.
        headings: Headings of the table.
        series: The series; their points have values instead of positions.
        numeric: Columns of numbers in the table, from 0.
        scale: Creates the scales.
    """
    finite = [
        (each, [point for point in each.points if math.isfinite(point.x) and math.isfinite(point.y)]) for each in series
    ]
    x = scale([point.x for _, points in finite for point in points])
    y = scale([point.y for _, points in finite for point in points])
    placed = tuple(
        replace(each, points=tuple(replace(p, x=x.position(p.x), y=100 - y.position(p.y)) for p in points))
        for each, points in finite
    )
    return Plane(*texts, x, y, tuple(_without_overlaps(placed)), headings, numeric)


def _without_overlaps(series: Iterable[Series]) -> Iterator[Series]:
    """Yield series whose labels can be read: of labels that would overlap, only the first stays.

    The table has the values of all points.
    """
    labels: list[Point] = []
    for each in series:
        points = []
        for point in each.points:
            overlaps = any(abs(point.x - o.x) < _LABEL_WIDTH and abs(point.y - o.y) < _LABEL_HEIGHT for o in labels)
            points.append(replace(point, label="") if overlaps else point)
            labels += [points[-1]] if points[-1].label else []
        yield replace(each, points=tuple(points))


def _all_numbers(axis: Axis, values: Iterable[Value]) -> list[float]:
    numbers = [] if axis.limit is None else [axis.limit]
    for value in values:
        if value.number is not None:
            numbers += [value.number, *(value.interval or ())]
    return numbers


def _row(value: Value, scale: Scale) -> Row:
    if value.number is None or not math.isfinite(value.number):
        return Row(value.label, value.text, None, bad=value.bad)
    low, high = (None, None) if value.interval is None else (scale.position(end) for end in value.interval)
    return Row(value.label, value.text, scale.position(value.number), low, high, value.bad)
