"""The request of a promotion, shared by the command line, the Python API, and the gates' run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.registry.gates.ab_timing import Schedule

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.serving import Credentials
    from repogen.spec.gates import GatesSpec


@dataclass(frozen=True)
class PromotionRequest:
    """What to promote.

    Attributes:
        name: Registered model.
        version: Registry version; the newest published one if None.
        alias: Alias to move.
        gates: The gates and their limits.
        root: Directory that paths in the gates' options are relative to.
        server: ``embedded``, ``docker`` or ``HOST:PORT``.
        dry_run: Measure and judge, but do not move the alias.
        credentials: TLS and headers of a server at ``HOST:PORT``.
        schedule: How long to time requests.
        other_names: Names to suggest if the registry does not have the model.
    """

    name: str
    version: int | None
    alias: str
    gates: GatesSpec
    root: Path
    server: str = "embedded"
    dry_run: bool = False
    credentials: Credentials = NO_CREDENTIALS
    schedule: Schedule = field(default_factory=Schedule)
    other_names: tuple[str, ...] = ()
