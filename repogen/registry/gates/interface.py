"""What a gate of a promotion is: its options, what it measures, and how it judges the measurement.

An entry point of the group ``repogen.gates`` names a class that implements `Gate`; its name is the gate's name in a
spec's ``promotion:`` section and in ``--gate``. A gate that limits the number of operators:

    class Options(Section):
        max_nodes: int | None = None


    class Nodes(Gate[Options, int]):
        options = Options
        requires = Requires.MANIFEST

        def measure(self, options: Options, versions: Versions) -> int:
            return versions.candidate.manifest.provenance.nodes_optimized

        def judge(self, options: Options, measurement: int) -> Iterable[GateResult]:
            yield judge_figure("nodes.max_nodes", measurement, f"{measurement} nodes", at_most=options.max_nodes)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydantic import BaseModel

from repogen.artifacts.promotion import GateResult, Verdict
from repogen.triton_config.sections.base import Section as Section  # noqa: PLC0414 - the base class for options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from repogen.artifacts.serving import SmokeReport
    from repogen.artifacts.versions import Manifest
    from repogen.registry.gates.ab_timing import Schedule
    from repogen.smoke.served import ServedVersion

OptionsT = TypeVar("OptionsT", bound=BaseModel)
MeasurementT = TypeVar("MeasurementT")

NO_CHAMPION = "no champion to compare with"


class Requires(IntEnum):
    """What has to run before a gate can be measured; each includes the ones before."""

    MANIFEST = 0
    """Nothing: the manifests are sufficient."""
    SMOKE_TEST = 1
    """A Triton of the version's target, and the smoke test of the candidate on it."""
    SERVED = 2
    """Candidate and champion, served by that Triton."""


class NotMeasuredError(Exception):
    """A gate could not be measured; the message says why. Every limit of the gate fails."""


@dataclass(frozen=True)
class Candidate:
    """The version to be promoted.

    Attributes:
        manifest: Its manifest.
        steps: The manifests of the models that an ensemble uses; empty for another model.
        smoke: Its smoke test; None when no active gate requires one.
        served: The version on a Triton; None when it is not served.
        obstacle: Why it is not served; empty when it is.
    """

    manifest: Manifest
    steps: tuple[Manifest, ...] = ()
    smoke: SmokeReport | None = None
    served: ServedVersion | None = None
    obstacle: str = ""

    def require_served(self) -> ServedVersion:
        """Return the served version.

        Raises:
            NotMeasuredError: It is not served.
        """
        if self.served is None:
            raise NotMeasuredError(self.obstacle or "not measured")
        return self.served


@dataclass(frozen=True)
class Champion:
    """The version that the alias points to now, or none.

    Attributes:
        version: Its registry version; None when the alias points to no version.
        manifest: Its manifest; None when repogen did not build it, or when no active gate compares with it.
        steps: The manifests of the models that an ensemble uses.
        served: The version on a Triton; None when it is not served.
        obstacle: Why it can't be measured; empty when it can.
    """

    version: int | None = None
    manifest: Manifest | None = None
    steps: tuple[Manifest, ...] = ()
    served: ServedVersion | None = None
    obstacle: str = ""

    def judge_missing(self, gate: str, limit: str) -> GateResult:
        """Return the result of a comparison with a champion that was not measured; `n/a` without a champion.

        Args:
            gate: Name of the result.
            limit: The limit as text.
        """
        if self.version is None:
            return GateResult(gate, "-", limit, Verdict.NOT_APPLICABLE, NO_CHAMPION)
        note = f"version {self.version}: {self.obstacle or 'not measured'}"
        return GateResult(gate, "-", limit, Verdict.FAILED, note)


@dataclass(frozen=True)
class Versions:
    """What a gate measures.

    Attributes:
        candidate: The version to be promoted.
        champion: The version that the alias points to now.
        root: Directory that the paths in options are relative to.
        schedule: How long to time requests.
    """

    candidate: Candidate
    champion: Champion
    root: Path
    schedule: Schedule


class Gate(Protocol[OptionsT, MeasurementT]):
    """A gate: a class without constructor arguments.

    Attributes:
        options: Pydantic model of the gate's section in a spec; ``Section`` is a base class that rejects unknown keys.
            ``--gate NAME=VALUE`` sets its first field. A number with ``max`` or ``min`` in its name is a limit, and
            fails if the gate can't be measured.
        requires: What has to run before the gate can be measured.
    """

    options: type[OptionsT]
    requires: Requires

    def check(self, options: OptionsT, root: Path) -> None:
        """Check the files that the options name, before anything is downloaded.

        Raises:
            SpecError: A file is missing.
        """
        return

    def compares(self, options: OptionsT) -> bool:
        """Return whether the gate compares with the champion, which is then downloaded and served."""
        return False

    def measure(self, options: OptionsT, versions: Versions) -> MeasurementT:
        """Measure the versions.

        Raises:
            NotMeasuredError: They can't be measured.
            RefusedError: The server rejected a request; the gate counts as not measured.
            NoResponseError: The server stopped responding; the promotion ends.
        """

    def judge(self, options: OptionsT, measurement: MeasurementT) -> Iterable[GateResult]:
        """Return one result per limit, or one recorded result without any."""


def failed_limits(gate: str, options: BaseModel, note: str) -> Iterator[GateResult]:
    """Yield a failed result for every limit that is set, or one for the gate without any.

    A limit is an option with ``max`` or ``min`` in its name, such as ``p95_max_ms``.

    Args:
        gate: Name of the gate.
        options: Its options.
        note: Why it could not be measured.
    """
    limits = {
        f"{gate}.{name}": f"{'<=' if 'max' in name.split('_') else '>='} {value:g}"
        for name, value in options
        if isinstance(value, int | float) and {"max", "min"} & set(name.split("_"))
    }
    for name, limit in (limits or {gate: ""}).items():
        yield GateResult(name, "-", limit, Verdict.FAILED, note)


def judge_figure(
    gate: str, value: float, text: str, *, at_most: float | None = None, at_least: float | None = None, note: str = ""
) -> GateResult:
    """Return the result of comparing a figure with its limit; recorded only without a limit.

    Args:
        gate: Name of the result, such as ``size.max_mb``.
        value: The figure; NaN fails every limit.
        text: The figure as text.
        at_most: Upper limit.
        at_least: Lower limit, used if there is no upper limit.
        note: What to know about the figure.

    >>> judge_figure("size.max_mb", 3.0, "3 MB", at_most=2.5).verdict
    <Verdict.FAILED: 'failed'>
    """
    if at_most is None and at_least is None:
        return GateResult(gate, text, "", Verdict.RECORDED, note, value)
    is_within = value <= at_most if at_most is not None else value >= (at_least if at_least is not None else math.inf)
    limit = f"<= {at_most:g}" if at_most is not None else f">= {at_least:g}"
    return GateResult(gate, text, limit, Verdict.PASSED if is_within else Verdict.FAILED, note, value)
