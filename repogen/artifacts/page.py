"""The result of ``repogen report``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class RenderedReport:
    """An HTML report that was written.

    Attributes:
        path: The file.
        size: Its bytes.
        repository: The repository that it is about.
        models: Number of models of the repository.
        versions: Number of their versions.
        measured: Names of the models with stored results of `build`, `bench` or `tune`.
        notes: What could not be read, and why; also if no model has stored results.
    """

    path: Path
    size: int
    repository: Path
    models: int
    versions: int
    measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
