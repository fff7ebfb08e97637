"""What a version must pass before an alias is moved to it: ``promotion:`` of a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from repogen.triton_config.sections.base import Seconds, Section, Tolerance, must_be

Positive = Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False), must_be("a number > 0 and <= 1e9")]
Figure = Annotated[float, Field(strict=True, ge=-1e9, le=1e9, allow_inf_nan=False), must_be("a number")]


class ParityGate(Section):
    """The largest difference from PyTorch, as the build measured it and as Triton's answers show it."""

    max_abs_diff: Tolerance | None = None


class SizeGate(Section):
    """Bytes of the graph and its weights; 1 MB is 2^20 of them."""

    max_mb: Positive | None = None
    max_ratio: Positive | None = Field(default=None, description="Against the present champion")


class LatencyGate(Section):
    """Single-row requests, one after another, in turns with the champion."""

    p95_max_ms: Positive | None = None
    max_ratio: Positive | None = Field(default=None, description="Median against the present champion's")


class ThroughputGate(Section):
    """Single-row requests, many at once, in turns with the champion."""

    min_ratio: Positive | None = Field(default=None, description="Rows a second against the present champion's")


class HoldoutGate(Section):
    """A figure that the user's code computes from what Triton answers; more is better."""

    callable: str = Field(description='"file.py:callable" or "package.module:callable": (predict, data) -> figure')
    data: str | None = Field(default=None, description="File handed to the callable, relative to the spec")
    metric: str | None = Field(default=None, min_length=1, description="Which figure, when it returns several by name")
    min: Figure | None = None
    max_drop: Tolerance | None = Field(default=None, description="How far below the present champion's it may be")
    timeout_seconds: Seconds = 300.0


class GatesSpec(Section):
    """What a version must pass before an alias is moved to it; a gate without a limit is recorded only."""

    parity: ParityGate = ParityGate()
    smoke: StrictBool = True
    size: SizeGate | None = None
    latency: LatencyGate | None = None
    throughput: ThroughputGate | None = None
    holdout: HoldoutGate | None = None


class PromotionSpec(Section):
    """How `repogen promote` decides; it has no part in a build."""

    gates: GatesSpec = GatesSpec()
