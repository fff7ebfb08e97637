"""What the holdout process is asked and what it answers, as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations

from pydantic import TypeAdapter

from repogen.errors import ErrorRecord  # noqa: TC001 - the same
from repogen.smoke.predict import Address  # noqa: TC001 - the same


@dataclass(frozen=True)
class HoldoutJob:
    """One version to be judged.

    Attributes:
        callable: ``file.py:callable`` or ``package.module:callable``.
        root: Directory that it is relative to.
        data: File to hand to it; None for none.
        address: Where the version is served.
        timeout_seconds: How long it may take.
    """

    callable: str
    root: Path
    data: Path | None
    address: Address
    timeout_seconds: float


@dataclass(frozen=True)
class Answer:
    """The figures by name, one number under ""; or why there are none."""

    figures: dict[str, float] = field(default_factory=dict)
    error: ErrorRecord | None = None


JOB: TypeAdapter[HoldoutJob] = TypeAdapter(HoldoutJob)
ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)
