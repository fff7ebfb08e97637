"""PyTorch and ONNX Runtime on the same inputs, over a sweep of shapes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from repogen.errors import ExportError, ParityError, SourceError
from repogen.validate.compare import Difference, difference, not_finite
from repogen.validate.sweep import SweepCase, plan_sweep
from repogen.values.artifacts import ParityCase, ParityReport
from repogen.values.source import OnnxFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.spec.models import ParitySpec
    from repogen.validate.golden import GoldenKeeper
    from repogen.validate.runtime import OnnxModel
    from repogen.values.source import SourceModel
    from repogen.values.tensors import Array, Arrays

_SHOWN = 5


@dataclass
class _Budget:
    """Compute seconds for the cases that are not required; learns what a unit of cost takes."""

    seconds: float
    spent: float = 0.0
    per_cost: float = field(default=0.0)

    def allows(self, case: SweepCase) -> bool:
        return case.required or self.spent + self.per_cost * case.cost <= self.seconds

    def charge(self, case: SweepCase, seconds: float) -> None:
        self.spent += seconds
        self.per_cost = seconds / max(case.cost, 1)


def check_parity(
    source: SourceModel,
    onnx_model: OnnxModel,
    spec: ParitySpec,
    allowed: dict[str, tuple[float, float]],
    golden: GoldenKeeper,
    explain: Callable[[Arrays], str] = lambda _: "",
) -> ParityReport:
    """Compare over the sweep as far as the budget goes.

    Args:
        source: The PyTorch model.
        onnx_model: The ONNX model.
        spec: Seeds and budget.
        allowed: (rtol, atol) by output.
        golden: Keeps some of the cases.
        explain: Says in a line what goes wrong on the inputs of the first case that disagrees.

    Raises:
        ParityError: Some case disagrees, or PyTorch itself gives NaN or is not deterministic; exit code 4.
        SourceError: The PyTorch model fails at a size that the spec declares.
    """
    budget = _Budget(spec.budget_seconds)
    cases: list[ParityCase] = []
    skipped: list[str] = []
    wrong: dict[str, Array] = {}
    for index, case in enumerate(plan_sweep(source.dims, spec.seed, spec.seeds)):
        if not budget.allows(case):
            skipped.append(case.name)
            continue
        begun = time.monotonic()
        inputs = source.examples(case.sizes, case.seed)
        expected = _reference(source, inputs, case)
        if index == 0:
            _refuse_nondeterministic(source, inputs, expected, allowed)
            begun = time.monotonic()
        cases.append(_compare(case, onnx_model, inputs, expected, allowed))
        if not (wrong or cases[-1].passed):
            wrong = inputs
        budget.charge(case, time.monotonic() - begun)
        golden.offer(case, inputs, expected)
    report = ParityReport(tuple(cases), tuple(skipped))
    if not report.passed:
        raise _missed(report, _original(source), explain(wrong))
    return report


def _reference(source: SourceModel, inputs: dict[str, Array], case: SweepCase) -> dict[str, Array]:
    try:
        outputs = source.reference(inputs)
    except SourceError as error:
        changed = [name for name, size in case.sizes.items() if size != source.dims[name].example]
        narrow = " and ".join(f"dims.{name}" for name in changed)
        raise ExportError(
            f"the {_original(source)} itself fails at {_place(source, case, changed)}: {error.message}",
            "a size may be baked into forward, as in reshape(2, -1): take it from x.shape"
            + (f"; or narrow {narrow} in the spec to what the model can take" if changed else ""),
            code="source.declared-size",
            where=error.where,
            details=error.details,
        ) from error
    if bad := not_finite(outputs):
        raise ParityError(
            f"the {_original(source)} itself gives NaN or Inf at {case.name}: {bad}",
            "look at the weights and at the example inputs: parity with NaN proves nothing",
            code="parity.not-finite",
        )
    return outputs


def _place(source: SourceModel, case: SweepCase, changed: list[str]) -> str:
    """Name each dim whose size is not the example's: its axes, what the spec declares, and the size that worked."""
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


def _refuse_nondeterministic(
    source: SourceModel,
    inputs: dict[str, Array],
    first: dict[str, Array],
    allowed: dict[str, tuple[float, float]],
) -> None:
    again = source.reference(inputs)
    apart = difference(first, again, allowed)
    if apart.reason:
        raise ParityError(
            f"the {_original(source)} differs from itself on the same inputs: {apart.reason}",
            "it is not deterministic: look for torch.rand, dropout with training=True, or buffers that forward changes",
            code="parity.non-deterministic",
        )


def _compare(
    case: SweepCase,
    onnx_model: OnnxModel,
    inputs: dict[str, Array],
    expected: dict[str, Array],
    allowed: dict[str, tuple[float, float]],
) -> ParityCase:
    try:
        actual = onnx_model(inputs)
    except ParityError as error:
        apart = Difference(0.0, 0.0, 0.0, error.message)
    else:
        apart = difference(expected, {name: np.asarray(array) for name, array in actual.items()}, allowed)
    return ParityCase(case.name, apart.max_abs, apart.max_rel, apart.cosine, not apart.reason, apart.reason)


def _original(source: SourceModel) -> str:
    return "ONNX file" if isinstance(source.origin, OnnxFile) else "PyTorch model"


def _missed(report: ParityReport, original: str, why: str) -> ParityError:
    bad = [case for case in report.cases if not case.passed]
    rows = "\n".join(f"  {case.name}: {case.reason}" for case in bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    hint = "try another exporter: `repogen diagnose` tells how each fares"
    if report.cases[0].passed:
        hint = "the example agrees, so the exporter froze a size: take sizes from x.shape in forward, or narrow dims:"
    return ParityError(
        f"ONNX Runtime disagrees with the {original} in {len(bad)} of {len(report.cases)} cases"
        f"{f'; {why}' if why else ''}:\n{rows}{more}",
        hint,
        code="parity.drift",
    )
