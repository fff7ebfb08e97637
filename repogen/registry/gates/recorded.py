"""The gates that need no requests of their own: parity, size, and the smoke test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.promotion import GateResult, Verdict
from repogen.artifacts.serving import SmokeReport
from repogen.registry.gates.interface import (
    Champion,
    Gate,
    NotMeasuredError,
    Requires,
    Versions,
    judge_figure,
)
from repogen.spec.gates import ParityGate, SizeGate, SmokeGate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.versions import Manifest

MB = 2**20
_MAX_FAILED_CHECKS = 3


class Smoke(Gate[SmokeGate, SmokeReport]):
    """Every check of the candidate's smoke test passes."""

    options = SmokeGate
    requires = Requires.SMOKE_TEST

    def measure(self, options: SmokeGate, versions: Versions) -> SmokeReport:
        """Return the report of the smoke test."""
        if versions.candidate.smoke is None:
            raise NotMeasuredError("not measured")
        return versions.candidate.smoke

    def judge(self, options: SmokeGate, measurement: SmokeReport) -> Iterator[GateResult]:
        """Yield one result; its note has the first failed checks."""
        checks = measurement.checks
        failures = [f"{check.name}: {check.detail}" for check in checks if not check.passed]
        hidden_count = len(failures) - _MAX_FAILED_CHECKS
        note = "; ".join(failures[:_MAX_FAILED_CHECKS]) + (f"; and {hidden_count} more" if hidden_count > 0 else "")
        verdict = Verdict.PASSED if measurement.passed else Verdict.FAILED
        yield GateResult("smoke", f"{len(checks) - len(failures)}/{len(checks)} checks", "all", verdict, note)


@dataclass(frozen=True)
class Differences:
    """Largest absolute differences.

    Attributes:
        built: Difference from PyTorch in the build.
        served: Difference of Triton's responses from the golden tensors; None if it was not measured.
        lossy: What a version is whose golden tensors are not PyTorch's; empty for any other.
    """

    built: float
    served: float | None
    lossy: str = ""


class Parity(Gate[ParityGate, Differences]):
    """The larger of two differences from PyTorch: in the build, and in Triton's responses to the golden inputs.

    The golden tensors of a lossy version come from ONNX Runtime, so the sum of both is what Triton's responses
    may differ by.
    """

    options = ParityGate
    requires = Requires.MANIFEST

    def measure(self, options: ParityGate, versions: Versions) -> Differences:
        """Return the difference from the manifest, and from the smoke test if there is one."""
        smoke = versions.candidate.smoke
        origin = versions.candidate.manifest.provenance
        lossy = "" if origin.lossy is None or origin.lossy.has_parity else str(origin.lossy)
        return Differences(origin.parity_max_abs_diff, None if smoke is None else smoke.max_abs_diff, lossy)

    def judge(self, options: ParityGate, measurement: Differences) -> Iterator[GateResult]:
        """Yield one result; NaN is the largest difference."""
        built, served = measurement.built, measurement.served
        values = (built,) if served is None else (built, served)
        bound = sum(values) if measurement.lossy else max(values)
        largest = math.nan if any(map(math.isnan, values)) else bound
        served_text = "not measured" if served is None else f"{served:.1e}"
        note = f"; {measurement.lossy}" if measurement.lossy else ""
        text = f"{largest:.1e} (built {built:.1e}, served {served_text}{note})"
        yield judge_figure("parity.max_abs_diff", largest, text, at_most=options.max_abs_diff)


@dataclass(frozen=True)
class Sizes:
    """Bytes that are served: of the candidate, and of the champion if it is known."""

    candidate: int
    champion: int | None
    compared: Champion


class Size(Gate[SizeGate, Sizes]):
    """Bytes of the graph and its weights, or of the code, from the manifests; of an ensemble, those of its steps."""

    options = SizeGate
    requires = Requires.MANIFEST

    def compares(self, options: SizeGate) -> bool:
        """Return whether the ratio is limited."""
        return options.max_ratio is not None

    def measure(self, options: SizeGate, versions: Versions) -> Sizes:
        """Return the sizes of both versions."""
        candidate, champion = versions.candidate, versions.champion
        champion_bytes = None if champion.manifest is None else _served_bytes(champion.manifest, *champion.steps)
        return Sizes(_served_bytes(candidate.manifest, *candidate.steps), champion_bytes, champion)

    def judge(self, options: SizeGate, measurement: Sizes) -> Iterator[GateResult]:
        """Yield the megabytes, and the ratio if it is limited."""
        megabytes = measurement.candidate / MB
        yield judge_figure("size.max_mb", megabytes, f"{megabytes:.3g} MB", at_most=options.max_mb)
        if options.max_ratio is None:
            return
        name = "size.max_ratio"
        if measurement.champion is None:
            yield measurement.compared.judge_missing(name, f"<= {options.max_ratio:g}")
            return
        ratio = measurement.candidate / max(measurement.champion, 1)
        text = f"{ratio:.3f}, to version {measurement.compared.version}'s {measurement.champion / MB:.3g} MB"
        yield judge_figure(name, ratio, text, at_most=options.max_ratio)


def _served_bytes(*manifests: Manifest) -> int:
    return sum(manifest.model_size for manifest in manifests)
