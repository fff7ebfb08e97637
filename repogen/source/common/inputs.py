"""The inputs of a forward: declared in the spec, or derived by comparing example inputs of two sizes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from repogen.artifacts.source import DimRange
from repogen.artifacts.tensors import DTYPES, Arrays, Dim, Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.call import Call, named_call
from repogen.source.common.callables import import_callable
from repogen.source.common.dim_names import BATCH
from repogen.source.common.examples import (
    CalledExamples,
    DrawnExamples,
    ExamplesFunction,
    StoredExamples,
    load_data,
    paths_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.source import Examples
    from repogen.source.common.call import CapturedCall, Parameters
    from repogen.spec.models import DimSpec, ModelSpec


DEFAULT_BATCH = DimRange(min=1, max=32, example=2)
"""The bounds of a batch that the spec does not declare."""
_EXAMPLE = 16
_ANY = inspect.signature(lambda *inputs, **by_name: (inputs, by_name)).parameters
"""Parameters of a function that accepts inputs by any name or by position."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a forward.

    Attributes:
        specs: The inputs, in order.
        dims: Their symbolic dims.
        examples: Creates example inputs.
        call: Maps the inputs to the arguments of the forward.
        notes: Messages for the report.
        stored_rows: Number of rows of the user's examples before they are cut or repeated; None if there are none.
    """

    specs: tuple[TensorSpec, ...]
    dims: dict[str, DimRange]
    examples: Examples
    call: Call
    notes: tuple[str, ...] = ()
    stored_rows: int | None = None


def dim_ranges(specs: Mapping[str, DimSpec]) -> dict[str, DimRange]:
    """Choose a different example size for every dim, because an exporter could merge two dims of equal size.

    Raises:
        SourceError: The only size that a dim allows is 1.
    """
    ranges: dict[str, DimRange] = {}
    for name, spec in sorted(specs.items(), key=lambda item: item[1].example is None):
        ranges[name] = example_range(name, spec, frozenset(dim_range.example for dim_range in ranges.values()))
    return {name: ranges[name] for name in specs}


def example_range(name: str, spec: DimSpec, used_sizes: frozenset[int]) -> DimRange:
    """Choose the example size of a dim: the spec's, otherwise from 2 (batch) or 16 (others), never 1 or one in use.

    Raises:
        SourceError: The only size allowed is 1.
    """
    if spec.max == 1:
        raise SourceError(
            f"dim {name!r} has max 1, so it is not dynamic", "write 1 in the shape instead", code="source.dim-one"
        )
    if spec.example is not None:
        return DimRange(spec.min, spec.max, spec.example)
    low = max(spec.min, 2)
    start = min(max(low, 2 if name == BATCH else _EXAMPLE), spec.max)
    candidates = [*range(start, min(spec.max, start + 64) + 1), *range(start, low - 1, -1)]
    return DimRange(spec.min, spec.max, next((c for c in candidates if c not in used_sizes), start))


def find_inputs(model: ModelSpec, root: Path, parameters: Parameters) -> Inputs:
    """Return the inputs of a spec entry.

    Args:
        model: The spec entry.
        root: Directory of the spec.
        parameters: Parameters of the forward.

    Raises:
        SourceError: The examples cannot be used, or do not match the declared inputs.
    """
    declared = tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.inputs.items())
    dims = dim_ranges(model.dims)
    source = _user_examples(model, root, parameters)
    if source is None:
        call = _call_by_names(declared, parameters)
        examples = DrawnExamples(model.inputs, model.triton.batch_input)
        return Inputs(declared, dims, examples, call, _position_note(declared, parameters))
    if isinstance(source, ExamplesFunction):
        return _inputs_of_function(source, declared, dims)
    return _inputs_of_files(source, declared, dims, parameters)


def examples_for(model: ModelSpec, declared: tuple[TensorSpec, ...], root: Path) -> Examples:
    """Return what creates example inputs for a model that has no PyTorch forward and may have string inputs.

    Args:
        model: The spec entry.
        declared: The model's inputs.
        root: Directory of the spec.

    Raises:
        SourceError: The examples cannot be used.
    """
    source = _user_examples(model, root, _ANY, strings=True)
    if source is None:
        return DrawnExamples(model.inputs, model.triton.batch_input)
    if isinstance(source, ExamplesFunction):
        return CalledExamples(source, declared, Signature(declared, ()).batch_dim or BATCH)
    return replace(source, inputs=declared)


def _user_examples(
    model: ModelSpec, root: Path, parameters: Parameters, *, strings: bool = False
) -> ExamplesFunction | StoredExamples | None:
    """Return what ``examples:`` refers to, files without input specs; None if the spec has no examples."""
    if model.examples is None:
        return None
    if isinstance(model.examples, str) and ":" in model.examples:
        function = import_callable(model.examples, root)
        return ExamplesFunction(function, model.examples, root, parameters, strings)
    files = (model.examples,) if isinstance(model.examples, str) else model.examples
    return StoredExamples(tuple(load_data(root / file) for file in files), ", ".join(files), ())


def _call_by_names(specs: tuple[TensorSpec, ...], parameters: Parameters) -> Call:
    return named_call(parameters, tuple(spec.name for spec in specs))


def _inputs_of_files(
    files: StoredExamples, declared: tuple[TensorSpec, ...], dims: dict[str, DimRange], parameters: Parameters
) -> Inputs:
    notes: tuple[str, ...] = ()
    if not declared and len(files.stored) > 1:
        set_dims = dims
        declared, dims = _compare_files(files.stored, dims)
        notes = _derived_dims_note(dims, set_dims, files.reference)
    specs = declared or derive_specs(files.stored[0], {})
    call = _call_by_names(specs, parameters)
    notes = (*notes, *_position_note(specs, parameters))
    return Inputs(specs, dims, replace(files, inputs=specs), call, notes, _rows(files.stored[0]))


def _rows(arrays: Arrays) -> int | None:
    """Return the size of axis 0 of all arrays; None if it differs."""
    sizes = {array.shape[0] for array in arrays.values() if array.ndim}
    return sizes.pop() if len(sizes) == 1 else None


def _position_note(specs: tuple[TensorSpec, ...], parameters: Parameters) -> tuple[str, ...]:
    """Report inputs that are passed by position although their names resemble parameters: they may be misspelled."""
    if any(spec.name in parameters for spec in specs):
        return ()
    similar = {spec.name: get_close_matches(spec.name, parameters, n=1) for spec in specs}
    return tuple(
        f"forward has no parameter {name!r}, so the input is passed by position (did you mean {names[0]!r}?)"
        for name, names in similar.items()
        if names
    )


def _compare_files(
    files: Sequence[Arrays], dims: dict[str, DimRange]
) -> tuple[tuple[TensorSpec, ...], dict[str, DimRange]]:
    """Derive dims from data files: each axis that differs between files is dynamic; equal sizes mean the same dim."""
    names: dict[tuple[int, ...], str] = {}
    specs = []
    for name, array in files[0].items():
        shape: list[Dim] = list(array.shape)
        for axis in range(array.ndim):
            sizes = tuple(_size(arrays, name, axis, array.ndim) for arrays in files)
            if len(set(sizes)) > 1:
                new_name = BATCH if axis == 0 and BATCH not in names.values() else f"{name}_axis{axis}"
                shape[axis] = names.setdefault(sizes, new_name)
        specs.append(TensorSpec(name, _dtype_name(name, array.dtype), tuple(shape)))
    ranges = {
        name: DEFAULT_BATCH if name == BATCH else DimRange(min(sizes), max(sizes), max(2, *sizes))
        for sizes, name in names.items()
    }
    return tuple(specs), {**ranges, **{name: dims[name] for name in ranges if name in dims}}


def _size(arrays: Arrays, name: str, axis: int, rank: int) -> int:
    if name not in arrays or arrays[name].ndim != rank:
        raise _inconsistent_error(name)
    return int(arrays[name].shape[axis])


def _inconsistent_error(name: str) -> SourceError:
    return SourceError(
        f"example {name!r} is missing, or has a different rank, when the size changes",
        "provide the same names and ranks for every size",
        code="source.examples-fit",
    )


def _inputs_of_function(
    function: ExamplesFunction, declared: tuple[TensorSpec, ...], dims: dict[str, DimRange]
) -> Inputs:
    batch = Signature(declared, ()).batch_dim or BATCH
    if declared:
        example, arrays = function.call({name: dim.example for name, dim in dims.items()}, batch, 0)
        call = _declared_call(example, arrays, declared, function)
        examples = CalledExamples(function, declared, batch)
        return Inputs(declared, dims, examples, call, _constants_note(example), _rows(arrays))
    specs, all_dims, example = _vary_dims(function, dims)
    notes = (*_derived_dims_note(all_dims, dims, function.reference), *_constants_note(example))
    return Inputs(specs, all_dims, CalledExamples(function, specs, batch), example.call, notes)


def _declared_call(
    example: CapturedCall, arrays: Arrays, declared: tuple[TensorSpec, ...], function: ExamplesFunction
) -> Call:
    """Return the captured call with its placeholders in the order of the declared inputs."""
    names = [spec.name for spec in declared]
    paths = paths_of(names, list(arrays), function.reference)
    if paths is None:
        return named_call(function.parameters, tuple(names))  # fit() reports what is missing
    positions = {path: names.index(name) for name, path in paths.items()}
    return example.call.reorder([positions[path] for path in arrays])


def _constants_note(example: CapturedCall) -> tuple[str, ...]:
    if not example.constants:
        return ()
    return (f"constants captured in the graph, as in the examples: {', '.join(example.constants)}",)


def _derived_dims_note(
    dims: Mapping[str, DimRange], set_dims: Mapping[str, DimRange], reference: str
) -> tuple[str, ...]:
    """Report the dims whose bounds the spec does not set."""
    if not dims:
        return (f"every dim is fixed: no axis of the arrays of {reference!r} changes with the batch",)
    ranges = ", ".join(f"{name} {dim.min} to {dim.max}" for name, dim in dims.items() if name not in set_dims)
    return (
        (f"dims derived by comparing examples of two sizes: {ranges} (set other bounds with dims:)",) if ranges else ()
    )


def _vary_dims(
    function: ExamplesFunction, dims: dict[str, DimRange]
) -> tuple[tuple[TensorSpec, ...], dict[str, DimRange], CapturedCall]:
    """Derive inputs and dims: call the function with two sizes of each dim, and compare the shapes."""
    all_dims = dims if BATCH in dims else {**dims, BATCH: DEFAULT_BATCH}
    sizes = {name: dim.example for name, dim in all_dims.items()}
    example, base = function.call(sizes, BATCH, 0)
    others = {name: function.call({**sizes, name: dim.other}, BATCH, 0)[1] for name, dim in all_dims.items()}
    specs = derive_specs(base, others)
    for name, dim in all_dims.items():
        _check_not_derived(name, (dim.example, dim.other), base, others[name], function.reference)
    used_dims = {dim for spec in specs for dim in spec.shape}
    if unused_dims := [name for name in dims if name not in used_dims]:
        raise SourceError(
            f"no axis of the arrays of {function.reference!r} changes with dim {unused_dims[0]!r}",
            f"add a parameter {unused_dims[0]} to it, or remove the dim",
            code="source.dim-unused",
            where=function.reference,
        )
    return specs, {name: dim for name, dim in all_dims.items() if name in used_dims}, example


def _check_not_derived(dim: str, sizes: tuple[int, int], base: Arrays, other_arrays: Arrays, reference: str) -> None:
    """Reject an axis whose size is derived from a dim, for example twice the batch: it cannot vary independently."""
    for name, array in base.items():
        for axis, (size, other_size) in enumerate(zip(array.shape, other_arrays[name].shape, strict=True)):
            if size != other_size and (size, other_size) != sizes:
                raise SourceError(
                    f"axis {axis} of {name!r} from {reference!r} is {size} where {dim} is {sizes[0]}, and "
                    f"{other_size} where it is {sizes[1]}: it is derived from {dim}, which config.pbtxt cannot express",
                    f"split it in forward: x.reshape({dim}, {size // max(sizes[0], 1)}, …); or, if the model accepts "
                    "any size there, declare inputs: with a separate dim for this axis",
                    code="source.derived-dim",
                    where=reference,
                )


def derive_specs(base: Arrays, others: Mapping[str, Arrays]) -> tuple[TensorSpec, ...]:
    """Return specs of example arrays.

    Args:
        base: The arrays.
        others: By dim, the arrays with another size of that dim: each axis that differs is this dim.

    Raises:
        SourceError: A name, a rank or a dtype is not usable.
    """
    specs = []
    for name, array in base.items():
        shape: list[Dim] = list(array.shape)
        for dim, arrays in others.items():
            if name not in arrays or arrays[name].ndim != array.ndim:
                raise _inconsistent_error(name)
            pairs = zip(array.shape, arrays[name].shape, strict=True)
            shape = [dim if a != b else current for current, (a, b) in zip(shape, pairs, strict=True)]
        specs.append(TensorSpec(name, _dtype_name(name, array.dtype), tuple(shape)))
    return tuple(specs)


def _dtype_name(name: str, dtype: object) -> str:
    if str(dtype) not in DTYPES:
        raise SourceError(
            f"example {name!r} has dtype {dtype}, which Triton's ONNX Runtime backend does not accept",
            f"use one of {', '.join(DTYPES)}",
            code="source.dtype",
        )
    return str(dtype)
