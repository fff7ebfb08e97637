"""Compares the original with the published model on the same inputs, over a sweep of sizes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import ParityCase, ParityReport
from repogen.artifacts.source import OnnxFile, PassThroughSource
from repogen.errors import ExportError, ParityError, SourceError
from repogen.validate.compare import Difference, difference, not_finite
from repogen.validate.runtime import OTHER_EXPORTER
from repogen.validate.sweep import SweepCase, plan_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array, Arrays, Sizes
    from repogen.spec.models import ParitySpec
    from repogen.validate.compare import Comparison, Tolerances
    from repogen.validate.golden import GoldenRecorder

_MAX_LISTED = 5
"""Failed cases that the message lists."""
_NOISE = 1e-4
"""Differences below this are reported as floating-point noise; a larger atol accepts them."""


@dataclass
class _Budget:
    """Compute seconds for the cases that are not required; estimates the cost of a case from the previous one."""

    seconds: float
    spent: float = 0.0
    seconds_per_cost: float = 0.0

    def allows(self, case: SweepCase) -> bool:
        return case.required or self.spent + self.seconds_per_cost * case.cost <= self.seconds

    def charge(self, case: SweepCase, seconds: float) -> None:
        self.spent += seconds
        self.seconds_per_cost = seconds / max(case.cost, 1)


def check_parity(
    comparison: Comparison,
    spec: ParitySpec,
    golden: GoldenRecorder,
    *,
    explain: Callable[[Arrays], str] = lambda _: "",
    extra_sizes: Sequence[Sizes] = (),
) -> ParityReport:
    """Compare the models over the sweep, within the budget.

    Args:
        comparison: The original and the published model.
        spec: Seeds and budget.
        golden: Records some of the cases.
        explain: Returns the cause of a difference in one line, for the inputs of the first case that differs.
        extra_sizes: Sizes that must be among the cases.

    Raises:
        ParityError: A case differs, or the original itself returns NaN or is not deterministic (exit 4).
        ExportError: The original itself fails at a size that the spec declares (exit 3).
    """
    source = comparison.source
    budget = _Budget(spec.budget_seconds)
    cases: list[ParityCase] = []
    skipped: list[str] = []
    unanswered: list[str] = []
    differing: dict[str, Array] = {}
    for index, case in enumerate(plan_sweep(source.dims, spec.seed, spec.seeds, extra_sizes)):
        if not budget.allows(case):
            skipped.append(case.name)
            continue
        started = time.monotonic()
        inputs = source.examples(case.sizes, case.seed)
        expected = _expected_outputs(source, inputs, case)
        if expected is None:
            unanswered.append(case.name)
            continue
        if index == 0:
            _require_determinism(source, inputs, expected, comparison.tolerances)
            started = time.monotonic()
        cases.append(_compare(case, comparison, inputs, expected))
        if not (differing or cases[-1].passed):
            differing = inputs
        budget.charge(case, time.monotonic() - started)
        if case.golden:
            golden.offer(case, inputs, expected)
    report = ParityReport(tuple(cases), tuple(skipped), tuple(unanswered))
    if not report.passed:
        raise drift_error(report, source, explain(differing))
    return report


def _expected_outputs(source: SourceModel, inputs: dict[str, Array], case: SweepCase) -> dict[str, Array] | None:
    """Return the original's outputs; None if it fails at sizes that the spec does not declare.

    Raises:
        ExportError: It fails at declared sizes.
        ParityError: An output has NaN or infinite values.
    """
    try:
        outputs = source.reference(inputs)
    except SourceError as error:
        if case.probing:
            return None
        raise _declared_size_error(source, case, error) from error
    if reason := not_finite(outputs):
        raise ParityError(
            f"the {_original(source)} itself returns NaN or Inf at {case.name}: {reason}",
            "check the weights and the example inputs: outputs with NaN cannot be compared",
            code="parity.not-finite",
        )
    return outputs


def _declared_size_error(source: SourceModel, case: SweepCase, error: SourceError) -> ExportError:
    changed = [name for name, size in case.sizes.items() if size != source.dims[name].example]
    failing = [name for name in changed if not _works(source, {name: case.sizes[name]}, case.seed)]
    dims = failing or changed
    narrowed = dims if dims != changed or len(dims) == 1 else []
    working = " and ".join(_working_sizes(source, name, case) for name in narrowed)
    hint = "forward may contain a literal size, as in reshape(2, -1): use x.shape"
    if dims:
        keys = " and ".join(f"dims.{name}" for name in dims)
        hint += f"; or narrow {keys} in the spec to sizes that the model supports"
    return ExportError(
        f"the {_original(source)} itself fails at {_failing_sizes(source, case, dims)}: {error.message}",
        f"{hint}: {working}" if working else hint,
        code="source.declared-size",
        where=error.where,
        details=error.details,
    )


def _works(source: SourceModel, changed: Sizes, seed: int) -> bool:
    """Return whether the original runs with some dims changed, and the others at their examples."""
    try:
        source.reference(source.examples({**source.example_sizes, **changed}, seed))
    except SourceError:
        return False
    return True


def _working_sizes(source: SourceModel, name: str, case: SweepCase) -> str:
    """Return the sizes of a dim at which the original runs, from its example on; found by bisection."""
    working_size, failing_size = source.dims[name].example, case.sizes[name]
    while abs(working_size - failing_size) > 1:
        middle = (working_size + failing_size) // 2
        if _works(source, {name: middle}, case.seed):
            working_size = middle
        else:
            failing_size = middle
    low, high = sorted((working_size, source.dims[name].example))
    return f"{name} {low} to {high} worked" if low < high else f"only {name} {low} worked"


def _failing_sizes(source: SourceModel, case: SweepCase, changed: list[str]) -> str:
    """Describe each dim whose size is not the example's: its axes, its declaration, and the size that worked."""
    parts = []
    for name in changed:
        dim = source.dims[name]
        axes = [
            f"axis {axis} of input {spec.name!r}"
            for spec in source.signature.inputs
            for axis, size in enumerate(spec.shape)
            if size == name
        ]
        declared = f"declared {dim.min} to {dim.max} in dims.{name}"
        parts.append(f"{name}={case.sizes[name]} ({', '.join(axes)}; {declared}; {dim.example} worked)")
    return " and ".join(parts) or case.name


def _require_determinism(
    source: SourceModel, inputs: dict[str, Array], outputs: dict[str, Array], tolerances: Tolerances
) -> None:
    reason = difference(outputs, source.reference(inputs), tolerances).reason
    if reason:
        raise ParityError(
            f"the {_original(source)} returns different outputs for the same inputs: {reason}",
            "make it deterministic: look for torch.rand, dropout with training=True, or buffers that forward changes",
            code="parity.non-deterministic",
        )


def _compare(
    case: SweepCase, comparison: Comparison, inputs: dict[str, Array], expected: dict[str, Array]
) -> ParityCase:
    try:
        actual = comparison.published(inputs)
    except (ParityError, SourceError) as error:
        result = Difference(0.0, 0.0, 0.0, error.message)
    else:
        arrays = {name: np.asarray(array) for name, array in actual.items()}
        result = difference(expected, arrays, comparison.tolerances)
    return ParityCase(case.name, result.max_abs, result.max_rel, result.cosine, not result.reason, result.reason)


def _original(source: SourceModel) -> str:
    if source.against:
        return f"reference {source.against}"
    if isinstance(source.origin, PassThroughSource):
        return source.origin.original
    return "ONNX file" if isinstance(source.origin, OnnxFile) else "PyTorch model"


def drift_error(report: ParityReport, source: SourceModel, cause: str) -> ParityError:
    """Return the error for a report with failed cases.

    Args:
        report: The report.
        source: The original.
        cause: The cause of the difference in one line; empty if it is unknown.
    """
    failed = [case for case in report.cases if not case.passed]
    lines = [f"  {case.name}: {case.reason}" for case in failed[:_MAX_LISTED]]
    if len(failed) > _MAX_LISTED:
        lines.append(f"  and {len(failed) - _MAX_LISTED} more")
    published = source.origin.served if isinstance(source.origin, PassThroughSource) else "ONNX Runtime"
    summary = (
        f"{published} disagrees with the {_original(source)} in {len(failed)} of {len(report.cases)} cases"
        f"{f'; {cause}' if cause else ''}:"
    )
    return ParityError("\n".join([summary, *lines]), _drift_hint(report, failed, source), code="parity.drift")


def _drift_hint(report: ParityReport, failed: list[ParityCase], source: SourceModel) -> str:
    if isinstance(source.origin, PassThroughSource):
        return (
            "check for state that is kept between requests; accept differences that the steps accumulate with parity: "
            "{atol: …}"
        )
    if source.against:
        return "the reference may have other weights, another architecture, or its inputs in another order"
    if all("among the actual values" in case.reason for case in failed) and _has_mask(source):
        return (
            "a mask that hides a whole row gives NaN in the graph and 0 in PyTorch: set examples: with masks that keep "
            "a part of each row"
        )
    if all(0.0 < case.max_abs_diff < _NOISE for case in failed):
        atol = 2 * max(case.max_abs_diff for case in failed)
        return f"this looks like floating-point noise: accept it with parity: {{atol: {atol:.0e}}}"
    if report.cases[0].passed:
        return (
            "the example size agrees, so the exporter froze a size, an `if` or a loop over x.shape: use sizes from "
            "x.shape, use operators instead of loops (nn.GRU, cumsum), or narrow dims: to the sizes that agree"
        )
    return OTHER_EXPORTER


def _has_mask(source: SourceModel) -> bool:
    return any(spec.dtype == "bool" or "mask" in spec.name for spec in source.signature.inputs)
