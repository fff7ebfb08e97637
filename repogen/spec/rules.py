"""Rules for a model that compare several values of the spec, each a pure function.

Source of the rules about Triton: measurements of tritonserver 2.51.0, and its model_configuration.md.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from repogen.spec.problems import MAX_COMPARED, MAX_SHOWN, closest
from repogen.spec.structure import Finding, PartialModel
from repogen.spec.triton_rules import TRITON_RULES
from repogen.targets import BFLOAT16_SINCE, accelerators_of, targets
from repogen.triton_config.rules.target import target_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.spec.models import DimSpec, InputSpec, ModelSpec
    from repogen.targets import Target

Findings: TypeAlias = "Iterator[Finding]"

# Source: torch.onnx.export, and the compatibility statement of ONNX Runtime.
_OLDEST_OPSET = 7
_MAX_OF_RULE = 2 * MAX_SHOWN
"""Problems of one rule in one model; some are compared with all names of the spec."""


def check_model(model: PartialModel, target: Target | None) -> Findings:
    """Yield the problems of a model; key paths start below its name.

    Args:
        model: The model; rules that read an invalid section are skipped.
        target: The Triton release; None if it is not supported.
    """
    for sections, rule in (*_RULES, *TRITON_RULES):
        if not sections & model.broken:
            yield from islice(rule(model.spec), _MAX_OF_RULE)
    if target is not None and "export" not in model.broken:
        yield from _opset(model.spec, target)
    if target is not None and not {"source", "inputs", "outputs"} & model.broken:
        yield from _bfloat16(model.spec, target)
    if target is not None and not {"triton", "dims"} & model.broken:
        yield from _tensorrt_profiles(model.spec, target)


# Other sources define their inputs themselves.
_NEED_INPUTS = frozenset({"torch", "torchscript", "python"})
_PROFILE = "trt_profile_min_shapes"
_FILES_WITH_DIMS = frozenset({"onnx", "torch_export"})


def _tensorrt_profiles(model: ModelSpec, target: Target) -> Findings:
    """Yield that ``tensorrt`` cannot write the profiles of a dynamic dim for this release."""
    if model.triton.tensorrt is None or not model.dims:
        return
    supported = (each for each in targets().values() if _PROFILE in accelerators_of(each)["tensorrt"].parameters)
    first = next(supported)
    if target.release < first.release:
        what = f"models with dynamic dims require Triton {first.release} or later, and the target is {target.release}"
        hint = "change target.triton, or configure optimization.execution_accelerators instead"
        yield Finding(("triton", "tensorrt"), what, hint)


def _inputs_or_examples(model: ModelSpec) -> Findings:
    if not model.inputs and model.examples is None and model.source.kind in _NEED_INPUTS:
        yield Finding((), "has neither inputs nor examples", "declare inputs: {name: {dtype: …, shape: […]}}")


def _shapes(model: ModelSpec) -> Findings:
    for name, declared in model.inputs.items() if model.source.kind in _NEED_INPUTS else ():
        for axis, size in enumerate(declared.shape):
            if isinstance(size, str) and size not in model.dims:
                similar = closest(size, list(model.dims))
                hint = f'did you mean "{similar}"?' if similar else f"dims: {{{size}: {{min: 1, max: 32}}}}"
                yield Finding(("inputs", name, "shape", axis), f'"{size}" is not declared in dims', hint)


def _dims_used(model: ModelSpec) -> Findings:
    used_dims = {str(size) for declared in model.inputs.values() for size in declared.shape}
    undeclared = sorted(used_dims - model.dims.keys())
    # A file has its own inputs and dims, of which the spec names only those that it narrows; its source checks them.
    for name in model.dims if model.inputs and model.source.kind not in _FILES_WITH_DIMS else ():
        # A misspelled name is one problem, which `_shapes` reports.
        if name not in used_dims and (len(undeclared) > MAX_COMPARED or closest(name, undeclared) is None):
            yield Finding(("dims", name), "no input's shape has this dim", "remove it, or use it in a shape")


def _dims(model: ModelSpec) -> Findings:
    for name, dim in model.dims.items():
        yield from _dim(name, dim)


def _dim(name: str, dim: DimSpec) -> Findings:
    path = ("dims", name)
    if dim.min > dim.max:
        yield Finding((*path, "min"), f"min {dim.min} is above max {dim.max}")
    elif dim.max == 1:
        yield Finding((*path, "max"), "a dim that can only be 1 is not dynamic", "write 1 in the shape instead")
    elif dim.example is not None and not dim.min <= dim.example <= dim.max:
        yield Finding((*path, "example"), f"example {dim.example} is not between min {dim.min} and max {dim.max}")


def _values(model: ModelSpec) -> Findings:
    needs_values = model.examples is None and model.source.kind in _NEED_INPUTS
    derived = {entry.target_name[0] for entry in model.triton.batch_input}
    for name, declared in model.inputs.items():
        path = ("inputs", name)
        if declared.range is not None:
            yield from _range(path, declared)
        elif "int" in declared.dtype and declared.fill is None and needs_values and name not in derived:
            what = f"{declared.dtype} has neither range nor fill, and random integers may be invalid"
            example = "[0, 255]" if declared.dtype == "uint8" else "[LOWEST, HIGHEST]"
            hint = f"write the values that the model accepts: range: {example}, both inclusive, or fill: ones"
            yield Finding(path, what, hint)


def _range(path: tuple[str, ...], declared: InputSpec) -> Findings:
    range_path = (*path, "range")
    low, high = declared.range or (0, 0)
    if "int" not in declared.dtype:
        yield Finding(range_path, f"range is for integers, but this input is {declared.dtype}", "remove it")
        return
    if declared.fill is not None:
        yield Finding(range_path, "range and fill are mutually exclusive", "keep one of the two")
    if low > high:
        yield Finding(range_path, f"the lowest value {low} is above the highest {high}")
    bits = int(declared.dtype.rpartition("int")[2])
    signed = not declared.dtype.startswith("u")
    floor, ceiling = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if min(low, high) < floor or max(low, high) > ceiling:
        yield Finding(range_path, f"exceeds the range of {declared.dtype}, {floor} to {ceiling}")


def _outputs(model: ModelSpec) -> Findings:
    seen_names: set[str] = set()
    for position, name in enumerate(model.outputs):
        if name in seen_names:
            yield Finding(("outputs", position), f'duplicate output "{name}"')
        seen_names.add(name)


def _output_names(model: ModelSpec) -> Findings:
    for position, name in enumerate(model.outputs):
        if name in model.inputs:
            yield Finding(("outputs", position), f'"{name}" is also an input', "use another name for the output")


def _batching(model: ModelSpec) -> Findings:
    size = model.triton.max_batch_size
    if not isinstance(size, int) or size == 0 or not model.inputs or model.triton.ragged:
        return
    path = ("triton", "max_batch_size")
    firsts = {declared.shape[0] if declared.shape else None for declared in model.inputs.values()}
    first = firsts.pop() if len(firsts) == 1 else None
    if not isinstance(first, str):
        what = f"{size} requires axis 0 of every input to be the same dim, the batch"
        yield Finding(path, what, "use 0, or write shape: [batch, …] and declare batch in dims")
        return
    dim = model.dims.get(first)
    if dim is not None and size > dim.max:
        yield Finding(path, f"{size} is above dims.{first}.max, {dim.max}", f"raise dims.{first}.max, or lower it")
    if dim is not None and dim.min > 1:
        what = f"dims.{first}.min is {dim.min}, but Triton also sends batches of 1"
        yield Finding(path, what, f"set dims.{first}.min to 1, or max_batch_size to 0")


def _oldest_opset(model: ModelSpec) -> Findings:
    if model.export.opset != "auto" and model.export.opset < _OLDEST_OPSET:
        what = f"opset {model.export.opset} is older than PyTorch and ONNX Runtime support"
        yield Finding(("export", "opset"), what, f"use auto, or {_OLDEST_OPSET} or newer")


def _opset(model: ModelSpec, target: Target) -> Findings:
    for finding in target_findings(model.export.opset, 0, target) if model.export.opset != "auto" else ():
        hint = f"use auto, {target.max_opset} or less, or a newer target.triton"
        yield Finding(("export", "opset"), f"{finding.code}: {finding.message}", hint)


_BFLOAT16_KINDS = frozenset({"torch", "torchscript"})


def _bfloat16(model: ModelSpec, target: Target) -> Findings:
    sides = (("inputs", model.inputs), ("outputs", model.declared_outputs))
    paths = [(side, name, "dtype") for side, specs in sides for name, spec in specs.items() if spec.dtype == "bfloat16"]
    for path in paths:
        if model.source.kind not in _BFLOAT16_KINDS:
            kinds = " and ".join(sorted(_BFLOAT16_KINDS))
            what = f"bfloat16 is supported for sources of kind {kinds}, not {model.source.kind}"
            yield Finding(path, what, "declare float32 or float16")
        elif not target.serves_bfloat16:
            what = f"Triton serves bfloat16 in release {BFLOAT16_SINCE} and later, and the target is {target.release}"
            hint = "declare float32 or float16, and cast inside the model; or choose a newer target.triton"
            yield Finding(path, what, hint)


_RULES: tuple[tuple[frozenset[str], Callable[[ModelSpec], Findings]], ...] = (
    (frozenset({"inputs", "examples", "source"}), _inputs_or_examples),
    (frozenset({"inputs", "dims", "source"}), _shapes),
    (frozenset({"inputs", "dims"}), _dims_used),
    (frozenset({"dims"}), _dims),
    (frozenset({"inputs", "examples", "source"}), _values),
    (frozenset({"outputs"}), _outputs),
    (frozenset({"inputs", "outputs"}), _output_names),
    (frozenset({"inputs", "dims", "triton"}), _batching),
    (frozenset({"export"}), _oldest_opset),
)
