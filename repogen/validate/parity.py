"""PyTorch and ONNX Runtime on the same inputs, over a sweep of shapes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import ParityCase, ParityReport
from repogen.artifacts.source import OnnxFile, PassThroughSource
from repogen.errors import ExportError, ParityError, SourceError
from repogen.validate.compare import Difference, difference, not_finite
from repogen.validate.sweep import SweepCase, plan_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.spec.models import ParitySpec
    from repogen.validate.golden import GoldenKeeper

_SHOWN = 5
_NOISE = 1e-4
"""Differences below it are told as noise, which an allowance mends."""


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


def check_parity(  # noqa: PLR0913 - both sides, and how they are compared
    source: SourceModel,
    published: Reference,
    spec: ParitySpec,
    allowed: dict[str, tuple[float, float]],
    golden: GoldenKeeper,
    *,
    explain: Callable[[Arrays], str] = lambda _: "",
    doubts: Sequence[dict[str, int]] = (),
) -> ParityReport:
    """Compare over the sweep as far as the budget goes.

    Args:
        source: The PyTorch model.
        published: What is published: the ONNX model.
        spec: Seeds and budget.
        allowed: (rtol, atol) by output.
        golden: Keeps some of the cases.
        explain: Says in a line what goes wrong on the inputs of the first case that disagrees.
        doubts: Sizes that must be among the cases.

    Raises:
        ParityError: Some case disagrees, or PyTorch itself gives NaN or is not deterministic; exit code 4.
        SourceError: The PyTorch model fails at a size that the spec declares.
    """
    budget = _Budget(spec.budget_seconds)
    cases: list[ParityCase] = []
    skipped: list[str] = []
    unanswered: list[str] = []
    wrong: dict[str, Array] = {}
    for index, case in enumerate(plan_sweep(source.dims, spec.seed, spec.seeds, doubts)):
        if not budget.allows(case):
            skipped.append(case.name)
            continue
        begun = time.monotonic()
        inputs = source.examples(case.sizes, case.seed)
        expected = _answered(source, inputs, case)
        if expected is None:
            unanswered.append(case.name)
            continue
        if index == 0:
            _refuse_nondeterministic(source, inputs, expected, allowed)
            begun = time.monotonic()
        cases.append(_compare(case, published, inputs, expected, allowed))
        if not (wrong or cases[-1].passed):
            wrong = inputs
        budget.charge(case, time.monotonic() - begun)
        if case.golden:
            golden.offer(case, inputs, expected)
    report = ParityReport(tuple(cases), tuple(skipped), tuple(unanswered))
    if not report.passed:
        raise _missed(report, source, explain(wrong))
    return report


def _answered(source: SourceModel, inputs: dict[str, Array], case: SweepCase) -> dict[str, Array] | None:
    """Return the original's outputs; None where it takes no such sizes, and the spec does not say that it does."""
    try:
        return _reference(source, inputs, case)
    except ExportError:
        if case.probing:
            return None
        raise


def _reference(source: SourceModel, inputs: dict[str, Array], case: SweepCase) -> dict[str, Array]:
    try:
        outputs = source.reference(inputs)
    except SourceError as error:
        if case.probing:
            raise _declared(source, case, [], "", error) from error
        changed = [name for name, size in case.sizes.items() if size != source.dims[name].example]
        alone = [name for name in changed if not _takes(source, {name: case.sizes[name]}, case.seed)] or changed
        taken = (
            " and ".join(_taken(source, name, case) for name in alone) if alone != changed or len(alone) == 1 else ""
        )
        raise _declared(source, case, alone, taken, error) from error
    if bad := not_finite(outputs):
        raise ParityError(
            f"the {_original(source)} itself gives NaN or Inf at {case.name}: {bad}",
            "look at the weights and at the example inputs: parity with NaN proves nothing",
            code="parity.not-finite",
        )
    return outputs


def _declared(source: SourceModel, case: SweepCase, changed: list[str], taken: str, error: SourceError) -> ExportError:
    narrow = " and ".join(f"dims.{name}" for name in changed)
    return ExportError(
        f"the {_original(source)} itself fails at {_place(source, case, changed)}: {error.message}",
        "a size may be baked into forward, as in reshape(2, -1): take it from x.shape"
        + (f"; or narrow {narrow} in the spec to what the model can take" if changed else "")
        + (f": {taken}" if taken else ""),
        code="source.declared-size",
        where=error.where,
        details=error.details,
    )


def _takes(source: SourceModel, changed: dict[str, int], seed: int) -> bool:
    """Whether the original answers with some dims changed, and the others at their examples."""
    try:
        source.reference(source.examples({**source.example_sizes, **changed}, seed))
    except SourceError:
        return False
    return True


def _taken(source: SourceModel, name: str, case: SweepCase) -> str:
    """Return the sizes of a dim from its example to where the original fails, by halving."""
    good, bad = source.dims[name].example, case.sizes[name]
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if _takes(source, {name: middle}, case.seed):
            good = middle
        else:
            bad = middle
    low, high = sorted((good, source.dims[name].example))
    return f"{name} {low} to {high} worked" if low < high else f"only {name} {low} worked"


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
    published: Reference,
    inputs: dict[str, Array],
    expected: dict[str, Array],
    allowed: dict[str, tuple[float, float]],
) -> ParityCase:
    try:
        actual = published(inputs)
    except (ParityError, SourceError) as error:
        apart = Difference(0.0, 0.0, 0.0, error.message)
    else:
        apart = difference(expected, {name: np.asarray(array) for name, array in actual.items()}, allowed)
    return ParityCase(case.name, apart.max_abs, apart.max_rel, apart.cosine, not apart.reason, apart.reason)


def _original(source: SourceModel) -> str:
    if source.against:
        return f"reference {source.against}"
    if isinstance(source.origin, PassThroughSource):
        return source.origin.original
    return "ONNX file" if isinstance(source.origin, OnnxFile) else "PyTorch model"


def _missed(report: ParityReport, source: SourceModel, why: str) -> ParityError:
    bad = [case for case in report.cases if not case.passed]
    rows = "\n".join(f"  {case.name}: {case.reason}" for case in bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    who = source.origin.served if isinstance(source.origin, PassThroughSource) else "ONNX Runtime"
    return ParityError(
        f"{who} disagrees with the {_original(source)} in {len(bad)} of {len(report.cases)} cases"
        f"{f'; {why}' if why else ''}:\n{rows}{more}",
        _remedy(report, bad, source),
        code="parity.drift",
    )


def _remedy(report: ParityReport, bad: list[ParityCase], source: SourceModel) -> str:
    if isinstance(source.origin, PassThroughSource):
        return (
            "look for state that is kept between requests, and for differences that the steps add up: parity: {atol: …}"
        )
    if source.against:
        return "it has other weights, or is of another model; or its inputs are in another order"
    if all("among the actual values" in case.reason for case in bad) and _masks(source):
        return (
            "a mask that hides a whole row makes NaN in the graph, where PyTorch's attention answers 0: give examples: "
            "whose masks leave something of each row"
        )
    if all(0.0 < case.max_abs_diff < _NOISE for case in bad):
        return (
            f"it looks like float noise: allow it, as with parity: {{atol: {2 * max(c.max_abs_diff for c in bad):.0e}}}"
        )
    if report.cases[0].passed:
        return (
            "the example agrees, so the exporter froze a size, or an `if` or a loop over x.shape: take sizes from "
            "x.shape, loop within operators (nn.GRU, cumsum), or narrow dims: to what agrees"
        )
    return "try another exporter: `repogen diagnose` tells how each fares"


def _masks(source: SourceModel) -> bool:
    return any(spec.dtype == "bool" or "mask" in spec.name for spec in source.signature.inputs)
