"""The parts of a report: sections with texts, tables and plots. The template renders each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from repogen.reporting.html.charts import Plane, RowChart

MAX_ROWS = 200
"""Rows of a table; what follows is counted in a note."""
_FEW = 2
_LONG = 30


@dataclass(frozen=True)
class Text:
    """A paragraph; ``bad`` marks a failure."""

    kind: ClassVar = "text"
    text: str
    bad: bool = False


@dataclass(frozen=True)
class Notes:
    """A list of sentences."""

    kind: ClassVar = "notes"
    items: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    kind: ClassVar = "facts"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        caption: What it contains.
        headings: Headings of the columns.
        rows: The cells; the first one of a row is its heading.
        numeric: Columns of numbers, from 0.
        folded: Whether it is closed until the reader opens it.
        bad: Rows that are marked as failures, from 0.
    """

    kind: ClassVar = "table"
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    folded: bool = False
    bad: frozenset[int] = frozenset()

    @property
    def first_rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows that the page has."""
        return self.rows[:MAX_ROWS]

    @property
    def long(self) -> bool:
        """Whether its texts need more width than a phone has."""
        return len(self.headings) > _FEW and any(len(cell) > _LONG for row in self.first_rows for cell in row)

    @property
    def omitted(self) -> int:
        """Number of rows that the page does not have."""
        return max(len(self.rows) - MAX_ROWS, 0)


@dataclass(frozen=True)
class Code:
    """A text with a fixed font, closed until the reader opens it."""

    kind: ClassVar = "code"
    caption: str
    text: str


@dataclass(frozen=True)
class Cell:
    """A number and the length of its bar in percent."""

    text: str
    part: float


@dataclass(frozen=True)
class Matrix:
    """A table of numbers with a bar in each cell, all on one scale.

    Attributes:
        caption: What it contains.
        headings: Heading of the rows, then of the columns.
        rows: Name, cells, and whether the cells differ.
        omitted: Number of rows that were left out.
    """

    kind: ClassVar = "matrix"
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...], bool], ...]
    omitted: int = 0


Part: TypeAlias = Text | Notes | Facts | Table | Code | Matrix | RowChart | Plane


@dataclass(frozen=True)
class Section:
    """A section of a model."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ModelView:
    """One model of a report.

    Attributes:
        name: Its name.
        status: Its status in one or a few words.
        bad: Whether it failed.
        overview: Its row in the overview, without the name and the status.
        sections: Its sections.
    """

    name: str
    status: str
    bad: bool
    overview: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class PageView:
    """A report.

    Attributes:
        title: Its title.
        facts: What it is about.
        notes: Notes about all models.
        error: An error that is not about one model; None without one.
        headings: Headings of the overview, after the name and the status.
        models: The models.
    """

    title: str
    facts: Facts
    notes: Notes
    error: Section | None
    headings: tuple[str, ...]
    models: tuple[ModelView, ...]
