"""What a build would do: the report of ``repogen plan``, and a shard of a build."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from repogen.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.errors import ErrorRecord

_SHARD = re.compile(r"(?P<index>[0-9]{1,6})/(?P<count>[0-9]{1,6})", re.ASCII)


@dataclass(frozen=True)
class Shard:
    """One of several parts of a build.

    Attributes:
        index: Number of the part, from 1.
        count: Number of parts.
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that ``INDEX/COUNT`` names.

        >>> Shard.parse("2/5")
        Shard(index=2, count=5)

        Raises:
            SpecError: It has another form, or the index is not from 1 to the count.
        """
        match = _SHARD.fullmatch(text)
        index, count = (int(match["index"]), int(match["count"])) if match else (0, 0)
        if not 1 <= index <= count:
            raise SpecError(
                f"{text!r} is not a shard", "write INDEX/COUNT, such as 1/4: the first of four", code="plan.shard"
            )
        return cls(index, count)

    def __str__(self) -> str:
        """Return ``INDEX/COUNT``."""
        return f"{self.index}/{self.count}"


@dataclass(frozen=True)
class Cost:
    """Time and memory that a build of a model needs.

    Attributes:
        seconds: Wall time of all steps.
        memory_bytes: Peak memory of its worker.
        measured: Whether an earlier build measured both; otherwise they are estimates.
    """

    seconds: float
    memory_bytes: int
    measured: bool


@dataclass(frozen=True)
class ModelPlan:
    """What a build would do with one model.

    Attributes:
        name: The model.
        reasons: Why it would be built; empty if it is up to date.
        version: The newest published version; None if no version can be used.
        dependencies: The models that it uses, dependencies first; only ensembles have any.
        fingerprint: Its inputs as they are now: key -> digest or version. Those that only importing the model can find
            are included if a version is published.
        cost: Time and memory that a build of it needs.
        shard: Number of the shard that builds it, from 1; None without shards.
        error: Why it would be built but is rejected; None if it is not.
    """

    name: str
    reasons: tuple[str, ...]
    version: int | None
    dependencies: tuple[str, ...]
    fingerprint: dict[str, str] = field(repr=False)
    cost: Cost
    shard: int | None = None
    error: ErrorRecord | None = None

    @property
    def status(self) -> Literal["pending", "up-to-date", "rejected"]:
        """Whether it would be built."""
        if self.error is not None:
            return "rejected"
        return "pending" if self.reasons else "up-to-date"


@dataclass(frozen=True)
class PlanReport:
    """What ``repogen build`` would do.

    Attributes:
        repository: The model repository, or its URL.
        target: Triton release.
        models: The selected models, in the order of the spec.
        shards: Number of shards; None without shards.
        notes: What the user should know about the whole build.
    """

    repository: Path
    target: str
    models: tuple[ModelPlan, ...]
    shards: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[ModelPlan, ...]:
        """The models that would be built."""
        return tuple(model for model in self.models if model.status == "pending")

    @property
    def seconds(self) -> float:
        """Estimated wall time of the whole build, one model at a time."""
        return sum(model.cost.seconds for model in self.pending)
