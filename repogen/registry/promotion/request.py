"""What ``repogen promote`` was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.registry.gates.ab_timing import Schedule

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.gates import GatesSpec


@dataclass(frozen=True)
class PromotionRequest:
    """What to promote.

    Attributes:
        name: Registered model.
        version: Registry version; the newest published one when None.
        alias: Alias to move.
        gates: What to measure, and the limits.
        root: Directory that the holdout gate's files are relative to.
        server: ``embedded``, ``docker`` or ``HOST:PORT``.
        dry_run: Measure and judge only.
        schedule: How long to time.
    """

    name: str
    version: int | None
    alias: str
    gates: GatesSpec
    root: Path
    server: str = "embedded"
    dry_run: bool = False
    schedule: Schedule = field(default_factory=Schedule)
