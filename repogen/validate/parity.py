"""Compares the original with the published model on the same inputs, over a sweep of sizes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from repogen.artifacts.built_model import ErrorDistribution, OutputDifference, ParityCase, ParityReport
from repogen.artifacts.source import OnnxFile, PassThroughSource
from repogen.errors import ExportError, ParityError, SourceError
from repogen.validate.compare import (
    difference,
    differing_outputs,
    has_nan,
    infinite_outputs,
    output_errors,
    summary,
)
from repogen.validate.drift import DriftError
from repogen.validate.histogram import ErrorHistogram
from repogen.validate.runtime import OTHER_EXPORTER, OnnxModel, accepts_nan
from repogen.validate.sweep import SweepCase, plan_sweep
from repogen.validate.ties import orders_equal_values
from repogen.validate.tolerance import Magnitudes, tolerances_of
from repogen.validate.variation import FACTORS, Variety, scaled, with_nan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from repogen.artifacts.source import DimRange, SourceModel
    from repogen.artifacts.tensors import Array, Arrays, Sizes
    from repogen.spec.models import ParitySpec
    from repogen.validate.compare import Comparison, OutputErrors
    from repogen.validate.tolerance import Tolerances

_MAX_LISTED = 5
"""Failed cases that the message lists."""
_NOISE = 1e-4
"""Differences below this share of the output's largest value are reported as rounding; a larger atol accepts them."""
_EXTREMES = {"of zeros, such as silence": 0.0, "that are 10 times as large": 10.0, "that are 100 times as large": 100.0}
_SIGMOID_ERROR = 1.5e-7
"""Absolute error of ONNX Runtime's Sigmoid in float32, measured as 1.2e-7; it returns 0 for inputs of -18."""


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
    recorders: Sequence[CaseRecorder],
    *,
    explain: Callable[[Arrays], str] = lambda _: "",
    extra_sizes: Sequence[Sizes] = (),
    smaller: Mapping[str, str] | None = None,
) -> tuple[ParityReport, Tolerances]:
    """Compare the models over the sweep, within the budget.

    Args:
        comparison: The original and the published model.
        spec: Seeds and budget.
        recorders: Receive every case.
        explain: Returns the cause of a difference in one line, for the inputs of the first case that differs.
        extra_sizes: Sizes that must be among the cases.
        smaller: Dims whose size cannot exceed that of another dim.

    Returns:
        The report, and the tolerance of each output at its magnitude over all cases.

    Raises:
        ParityError: A case differs, or the original itself returns NaN or is not deterministic (exit 4).
        ExportError: The original itself fails at a size that the spec declares (exit 3).
    """
    sweep, source = _Sweep(comparison, recorders), comparison.source
    cases = plan_sweep(source.dims, spec.seed, spec.seeds, extra_sizes, source.signature.batch_dim, smaller)
    sweep.run(cases, _Budget(spec.budget_seconds))
    sweep.vary_constant_outputs(spec)
    sweep.compare_extremes(spec.seed)
    sweep.compare_nan(spec.seed)
    report, allowed = sweep.report()
    if not report.passed:
        raise drift_error(report, source, explain(sweep.first_differing(report)), spec.atol)
    return report, allowed


class CaseRecorder(Protocol):
    """Receives the cases of a sweep."""

    def offer(self, case: SweepCase, inputs: Arrays, expected: Arrays, actual: Arrays) -> None:
        """Record a case, or parts of it.

        Args:
            case: The case.
            inputs: Its inputs.
            expected: The original's outputs.
            actual: The published model's outputs; empty if it failed.
        """


@dataclass(frozen=True)
class _Measured:
    """A case whose errors were measured; which of them are allowed is known after the last case.

    Attributes:
        name: Name of the case.
        inputs: Creates its inputs.
        errors: Errors of each output.
        failure: Why the published model failed; empty if it did not.
        sizes: Size of each symbolic dim.
    """

    name: str
    inputs: Callable[[], Arrays]
    errors: list[OutputErrors]
    failure: str = ""
    sizes: Sizes = field(default_factory=dict)

    def judged(self, allowed: Tolerances) -> ParityCase:
        """Return the result of the case."""
        if self.failure:
            return ParityCase(
                self.name, math.inf, math.inf, 0.0, passed=False, reason=self.failure, sizes=dict(self.sizes)
            )
        result = summary(self.errors, allowed)
        return ParityCase(
            self.name,
            result.max_abs,
            result.max_rel,
            result.cosine,
            not result.reason,
            result.reason,
            dict(self.sizes),
            tuple(OutputDifference(output.name, output.max_abs, output.max_rel) for output in self.errors),
        )


class _Sweep:
    """Runs both models on the cases, and compares them at the magnitudes of all cases."""

    def __init__(self, comparison: Comparison, recorders: Sequence[CaseRecorder]) -> None:
        self._comparison = comparison
        self._source = comparison.source
        self._recorders = recorders
        self._magnitudes = Magnitudes()
        self._variety = Variety()
        self._measured: list[_Measured] = []
        self._skipped: list[str] = []
        self._unanswered: list[str] = []
        self._infinite: dict[str, int] = {}
        self._largest: dict[str, float] = {}
        self._histograms: dict[str, ErrorHistogram] = {}
        self._not_finite: dict[str, str] = {}
        self._different_for_nan: list[str] = []

    def run(self, cases: Sequence[SweepCase], budget: _Budget) -> None:
        """Run the cases within the budget."""
        compared: list[Sizes] = []
        pending = list(cases)
        while pending:
            case = pending.pop(0)
            if case.covered_by in compared:
                continue
            if not budget.allows(case):
                self._skipped.append(case.name)
            elif self._run_case(case, budget, is_first=not compared):
                compared.append(case.sizes)
            else:
                self._unanswered.append(case.name)
                pending[:0] = [] if case.otherwise is None else [case.otherwise]

    def _run_case(self, case: SweepCase, budget: _Budget, *, is_first: bool) -> bool:
        """Run both models on a case; return whether the original supports its sizes."""
        started = time.monotonic()
        inputs = self._source.examples(case.sizes, case.seed)
        expected = _expected_outputs(self._source, inputs, case)
        if expected is None:
            return False
        if is_first:
            allowed = tolerances_of(expected, self._comparison.limits)
            _require_determinism(self._source, inputs, expected, allowed)
            started = time.monotonic()
        inputs_of = partial(self._source.examples, case.sizes, case.seed)
        actual = self._compare(case, inputs_of, inputs, expected)
        budget.charge(case, time.monotonic() - started)
        for recorder in self._recorders:
            recorder.offer(case, inputs, expected, actual)
        return True

    def _compare(
        self, case: SweepCase, inputs_of: Callable[[], Arrays], inputs: Arrays, expected: Arrays, suffix: str = ""
    ) -> dict[str, Array]:
        """Run the published model, and measure its errors; return its outputs, none if it failed."""
        name = f"{case.name}{suffix}"
        self._magnitudes.add(expected)
        self._variety.add(inputs, expected)
        for output, limit in self._comparison.limits.items():
            if limit.atol is not None and output in expected:
                self._largest[output] = max(self._largest.get(output, 0.0), _largest_value(expected[output]))
        for output in infinite_outputs(expected):
            self._infinite[output] = self._infinite.get(output, 0) + 1
        published = self._comparison.published
        try:
            # A lossy graph is compared with itself: its outputs are those that were computed already.
            outputs = expected if published is self._source.reference else published(inputs)
            actual = {name: np.asarray(array) for name, array in outputs.items()}
        except (ParityError, SourceError) as error:
            self._measured.append(_Measured(name, inputs_of, [], error.message, sizes=case.sizes))
            return {}
        rtols = {name: limit.rtol for name, limit in self._comparison.limits.items()}
        self._measured.append(_Measured(name, inputs_of, output_errors(expected, actual, rtols), sizes=case.sizes))
        for output, array in expected.items():
            if output in actual:
                self._histograms.setdefault(output, ErrorHistogram()).add(array, actual[output])
        return actual

    def vary_constant_outputs(self, spec: ParitySpec) -> None:
        """Try other inputs until no output is the same for all: such an output proves nothing."""
        sizes = self._source.example_sizes
        for seed, factor in ((spec.seed + spec.seeds + i, factor) for i, factor in enumerate((*FACTORS, 100.0))):
            names = self._variety.constant
            if not names:
                return
            examples = self._source.examples(sizes, seed)
            inputs = scaled(examples, factor) or examples  # the values of integers have a meaning
            expected = self._outputs_or_none(inputs)
            # Large values saturate, for example as probabilities of 1, and any order of equal values is correct.
            is_scaled = inputs is not examples
            if expected is not None and not (is_scaled and orders_equal_values(self._source.reference, inputs)):
                suffix = f" x {factor:g}" if is_scaled else ""
                # The other outputs were compared on the examples, and may not support such values.
                constant = {name: expected[name] for name in names}
                self._compare(SweepCase(sizes, seed, required=False), partial(dict, inputs), inputs, constant, suffix)

    def compare_extremes(self, seed: int) -> None:
        """Find outputs that are not finite only in the published model, for inputs of zeros and for large ones.

        A lost 1e-8 in ``x / (x.norm() + 1e-8)`` and an overflow in ``log(exp(x) + 1)`` do not show on other inputs.
        """
        examples = self._source.examples(self._source.example_sizes, seed)
        for description, factor in _EXTREMES.items():
            inputs = scaled(examples, factor)
            expected = self._outputs_or_none(inputs) if inputs is not None else None
            if inputs is None or expected is None:
                continue
            try:
                actual = self._comparison.published(inputs)
            except (ParityError, SourceError):
                continue  # a model that PyTorch runs on them, and the runtime does not, returns no wrong values
            finite = expected.keys() - infinite_outputs(expected)  # no output is NaN
            values = {name: actual[name] for name in expected if name in finite and name in actual}
            not_finite = {*infinite_outputs(values), *(name for name in values if has_nan({name: values[name]}))}
            for name in (name for name in values if name in not_finite):
                self._not_finite.setdefault(name, description)

    def compare_nan(self, seed: int) -> None:
        """Find outputs of a graph that differ for inputs in which some values are NaN, as clients may send them.

        Operators of ONNX Runtime such as ReduceMax and TopK ignore NaN, or place it differently.
        """
        published, examples = self._comparison.published, self._source.examples(self._source.example_sizes, seed)
        inputs = with_nan(examples, seed)
        if inputs is None or has_nan(examples):  # which the parity cases have compared
            return
        if not isinstance(published, OnnxModel) or not accepts_nan(published):
            return
        try:
            expected, actual = self._source.reference(inputs), published(inputs)
        except (ParityError, SourceError):
            return  # such as an index that is computed from NaN
        allowed = self._magnitudes.tolerances(self._comparison.limits)
        self._different_for_nan = differing_outputs(expected, actual, allowed)

    def _outputs_or_none(self, inputs: Arrays) -> dict[str, Array] | None:
        """Return the original's outputs; None if it does not support the inputs."""
        try:
            outputs = self._source.reference(inputs)
        except SourceError:
            return None
        return None if has_nan(outputs) else outputs

    def report(self) -> tuple[ParityReport, Tolerances]:
        """Return the report, and the tolerances."""
        allowed = self._magnitudes.tolerances(self._comparison.limits)
        cases = tuple(measured.judged(allowed) for measured in self._measured)
        errors = tuple(_distribution(name, h, *allowed[name]) for name, h in self._histograms.items())
        notes = tuple(self._notes())
        return ParityReport(cases, tuple(self._skipped), tuple(self._unanswered), notes, errors), allowed

    def first_differing(self, report: ParityReport) -> Arrays:
        """Return the inputs of the first case that differs; none if no case ran."""
        pairs = zip(self._measured, report.cases, strict=True)
        return next((measured.inputs() for measured, case in pairs if not case.passed), {})

    def _notes(self) -> Iterator[str]:
        total = len(self._measured)
        for name, count in self._infinite.items():
            yield (
                f"output {name!r} has infinite values in {count} of {total} cases; they were compared by their places "
                "and signs"
            )
        for name, largest in self._largest.items():
            atol = self._comparison.limits[name].atol
            if atol is not None and math.inf > atol > largest > 0:  # infinite if the quality is measured instead
                yield (
                    f"parity.atol {atol:g} is larger than every value of output {name!r}, at most {largest:.3g}: the "
                    "comparison detects nothing; lower it in the spec"
                )
        for name, description in self._not_finite.items():
            yield (
                f"for inputs {description}, output {name!r} has NaN or infinite values that the "
                f"{original_name(self._source)} does not return: if clients can send such inputs, change the division, "
                "logarithm or exponential in forward, or try another exporter"
            )
        if self._different_for_nan:
            names = ", ".join(map(repr, self._different_for_nan))
            yield (
                f"for inputs with NaN, ONNX Runtime and the {original_name(self._source)} return different values of "
                f"{names}: if clients send NaN, such as for missing values, replace it in forward with "
                "torch.nan_to_num, or set examples: with NaN, which makes a difference an error"
            )
        for name in self._variety.constant:
            yield (
                f"output {name!r} is the same for all inputs that were tried, so parity proves little about it: set "
                "examples: or inputs: with values for which it changes"
            )


def _largest_value(array: Array) -> float:
    """Return the largest finite absolute value of a floating-point array; 0 without any."""
    if array.dtype.kind != "f":
        return 0.0
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def _distribution(name: str, histogram: ErrorHistogram, rtol: float, atol: float) -> ErrorDistribution:
    bins = dict(sorted(histogram.bins.items()))
    return ErrorDistribution(name, rtol, atol if math.isfinite(atol) else None, histogram.exact, bins)


def _expected_outputs(source: SourceModel, inputs: dict[str, Array], case: SweepCase) -> dict[str, Array] | None:
    """Return the original's outputs; None if it fails at sizes that the spec does not declare.

    Raises:
        ExportError: It fails at declared sizes.
        ParityError: An output has NaN, with which nothing can be compared, even where both models return it.
    """
    try:
        outputs = source.reference(inputs)
    except SourceError as error:
        if case.probing:
            return None
        raise _value_error(source, case, error) or _declared_size_error(source, case, error) from error
    if reason := has_nan(outputs):
        raise ParityError(
            f"the {original_name(source)} itself returns NaN at {case.name}: {reason}",
            source.declare or _nan_hint(inputs),
            code="parity.not-finite",
        )
    return outputs


def _nan_hint(inputs: Arrays) -> str:
    masks = [
        name
        for name, array in inputs.items()
        if array.dtype.kind in "biu" and array.ndim > 1 and array.size and not array.any(axis=-1).all()
    ]
    if masks:
        return (
            f"a row of {masks[0]} has only zeros; if it is a mask that must keep one position, set examples: with such "
            "masks, or fill: ones"
        )
    return "check the weights and the example inputs: outputs with NaN cannot be compared"


def _value_error(source: SourceModel, case: SweepCase, error: SourceError) -> ExportError | None:
    """Return the error about integers that the original does not accept; None if it fails because of its sizes."""
    arrays, accepted = (source.examples(sizes, case.seed) for sizes in (case.sizes, source.example_sizes))
    integers = {name: array for name, array in arrays.items() if array.dtype.kind in "iu" and accepted[name].size}
    if not integers or not any(array.size for array in integers.values()):
        return None
    try:
        source.reference(
            {**arrays, **{name: np.resize(accepted[name], array.shape) for name, array in integers.items()}}
        )
    except SourceError:
        return None
    values = ", ".join(f"{name}: {array.min()} to {array.max()}" for name, array in integers.items() if array.size)
    return ExportError(
        f"the {original_name(source)} itself fails for some values at {case.name} ({values}): {error.message}",
        "an integer input may exceed a table of the model, such as its vocabulary or positions: correct range: in the "
        "spec, or the examples",
        code=error.code,
        where=error.where,
        details=error.details,
    )


def _declared_size_error(source: SourceModel, case: SweepCase, error: SourceError) -> ExportError:
    changed = [name for name, size in case.sizes.items() if size != source.dims[name].example]
    failing = [name for name in changed if not _works(source, {name: case.sizes[name]}, case.seed)]
    dims = failing or changed
    narrowed = dims if dims != changed or len(dims) == 1 else []
    ranges = {name: _working_sizes(source, name, case) for name in narrowed}
    raised_or_lowered = [_new_bound(name, source.dims[name], ranges[name], case.sizes[name]) for name in narrowed]
    has_other_outputs = error.code == "source.outputs"
    hints = [error.hint] if has_other_outputs else []
    if narrowed and all(raised_or_lowered):
        hints.append(f"{' and '.join(raised_or_lowered)} in the spec")
    else:
        if not has_other_outputs:
            hints.append("forward may contain a literal size, as in reshape(2, -1): use x.shape")
        if dims:
            keys = " and ".join(f"dims.{name}" for name in dims)
            working = " and ".join(_range_text(name, *ranges[name]) for name in narrowed)
            narrow = f"narrow {keys} in the spec to sizes that the model supports"
            hints.append(f"{narrow}: {working}" if working else narrow)
    return ExportError(
        f"the {original_name(source)} itself fails at {_failing_sizes(source, case, dims)}: {error.message}",
        "; or ".join(hints),
        code="source.outputs" if has_other_outputs else "source.declared-size",
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


def _working_sizes(source: SourceModel, name: str, case: SweepCase) -> tuple[int, int]:
    """Return the range of a dim in which the original runs, around its example and up to the size that failed."""
    dim, failing_size = source.dims[name], case.sizes[name]
    is_low = failing_size < dim.example
    low = _last_working_size(source, name, failing_size if is_low else dim.min, case.seed)
    high = _last_working_size(source, name, dim.max if is_low else failing_size, case.seed)
    return low, high


def _last_working_size(source: SourceModel, name: str, end: int, seed: int) -> int:
    """Return the size closest to ``end`` at which the original runs, from the example on; found by bisection."""
    if _works(source, {name: end}, seed):
        return end
    working_size, failing_size = source.dims[name].example, end
    while abs(working_size - failing_size) > 1:
        middle = (working_size + failing_size) // 2
        if _works(source, {name: middle}, seed):
            working_size = middle
        else:
            failing_size = middle
    return working_size


def _new_bound(name: str, dim: DimRange, working: tuple[int, int], failing_size: int) -> str:
    """Return how to change the bound of a dim that failed if the other bound works; empty otherwise."""
    low, high = working
    if failing_size == dim.min and high == dim.max:
        return f"raise dims.{name}.min to {low}"
    return f"lower dims.{name}.max to {high}" if failing_size == dim.max and low == dim.min else ""


def _range_text(name: str, low: int, high: int) -> str:
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
            f"the {original_name(source)} returns different outputs for the same inputs: {reason}",
            "make it deterministic: look for torch.rand, dropout with training=True, or buffers that forward changes",
            code="parity.non-deterministic",
        )


def original_name(source: SourceModel) -> str:
    """Return what the published model is compared with, for a sentence."""
    if source.against:
        return f"reference {source.against}"
    if isinstance(source.origin, PassThroughSource):
        return source.origin.original
    return "ONNX file" if isinstance(source.origin, OnnxFile) else "PyTorch model"


def drift_error(report: ParityReport, source: SourceModel, cause: str, atol: float | None = None) -> DriftError:
    """Return the error for a report with failed cases.

    Args:
        report: The report.
        source: The original.
        cause: The cause of the difference in one line; empty if it is unknown.
        atol: The absolute tolerance of the spec; None if it has none.
    """
    failed = [case for case in report.cases if not case.passed]
    lines = [f"  {case.name}: {case.reason}" for case in failed[:_MAX_LISTED]]
    if len(failed) > _MAX_LISTED:
        lines.append(f"  and {len(failed) - _MAX_LISTED} more")
    published = source.origin.served if isinstance(source.origin, PassThroughSource) else "ONNX Runtime"
    subject, stored_hint = f"{published} disagrees with the {original_name(source)}", ""
    if source.stored and all(case.sizes == source.example_sizes for case in failed):
        subject = f"the model's outputs differ from the outputs in {source.stored}"
        stored_hint = _precision_hint(failed, cause) or (
            f"check {source.stored}: its outputs must be those of this model, in evaluation mode, for its inputs"
        )
    summary = f"{subject} in {len(failed)} of {len(report.cases)} cases{f'; {cause}' if cause else ''}:"
    rounding_hint = _rounding_hint(failed, source, atol)
    hint = rounding_hint or stored_hint or _drift_hint(report, failed, source, cause)
    where = "parity" if rounding_hint else ""
    error = DriftError("\n".join([summary, *lines]), hint, code="parity.drift", where=where)
    error.parity = report
    return error


_OF_CONSTANT_TENSOR = (
    "a tensor of sizes became a constant: write torch.tensor([…]), which keeps sizes dynamic, instead of torch.Tensor, "
    "torch.FloatTensor, torch.LongTensor, or a NumPy array"
)


def _drift_hint(report: ParityReport, failed: list[ParityCase], source: SourceModel, cause: str) -> str:
    if isinstance(source.origin, PassThroughSource):
        return (
            "check for state that is kept between requests; if the differences of the steps add up, accept them with "
            "parity: {atol: …}"
        )
    if source.against:
        return "the reference may have different weights, a different architecture, or a different order of inputs"
    if all("among the actual values" in case.reason for case in failed) and _has_mask(source):
        return (
            "a mask that hides a whole row gives NaN in the graph and 0 in PyTorch: set examples: with masks that keep "
            "a part of each row"
        )
    if hint := _precision_hint(failed, cause):
        return hint
    if report.cases[0].passed:
        return (
            _OF_CONSTANT_TENSOR
            if "aten.lift_fresh" in cause
            else (
                "the example size agrees, so the exporter froze a size, an `if` or a loop over x.shape: use sizes from "
                "x.shape, use operators instead of loops (nn.GRU, cumsum), or narrow dims: to the sizes that agree"
            )
        )
    return OTHER_EXPORTER


def _rounding_hint(failed: list[ParityCase], source: SourceModel, atol: float | None) -> str:
    """Return a hint if the spec's tolerance is below the rounding of an output's dtype; empty if it is not."""
    outputs = [output for case in failed for output in case.outputs if 0.0 < output.max_rel_diff < _NOISE]
    if atol is None or not outputs or any(case.max_rel_diff >= _NOISE for case in failed):
        return ""
    worst = max(outputs, key=lambda output: output.max_abs_diff)
    dtype = next((spec.dtype for spec in source.signature.outputs if spec.name == worst.name), "")
    magnitude = worst.max_abs_diff / worst.max_rel_diff
    if not dtype.startswith("float") or atol >= np.finfo(dtype).eps * magnitude:
        return ""
    return (
        f"parity.atol is {atol:g}, which is below the rounding of {dtype} at values of {magnitude:.2g}: omit it, or "
        f"set parity: {{atol: {2 * worst.max_abs_diff:.0e}}}"
    )


def _precision_hint(failed: list[ParityCase], cause: str) -> str:
    """Return what to do about differences within the precision of the runtime; empty if they are larger."""
    if "aten.sigmoid" in cause and all(case.max_abs_diff <= _SIGMOID_ERROR for case in failed):
        return (
            f"ONNX Runtime computes Sigmoid with an absolute error of up to {_SIGMOID_ERROR:.1e}: return the logits, "
            f"or accept it with parity: {{atol: {_SIGMOID_ERROR:.1e}}}"
        )
    if all(0.0 < case.max_rel_diff < _NOISE for case in failed):
        atol = 2 * max(case.max_abs_diff for case in failed)
        return f"this looks like floating-point noise: accept it with parity: {{atol: {atol:.0e}}}"
    return ""


def _has_mask(source: SourceModel) -> bool:
    return any(spec.dtype == "bool" or "mask" in spec.name for spec in source.signature.inputs)
