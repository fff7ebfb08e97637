"""The inputs of a forward: declared in the spec, or found by comparing examples of two sizes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.artifacts.source import DimRange
from repogen.artifacts.tensors import DTYPES, Array, Arrays, Dim, Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.call import Call, Placeholder, named_call
from repogen.source.common.callables import import_callable
from repogen.source.common.dims import BATCH, FOUND_BATCH, dim_ranges
from repogen.source.common.examples import CalledExamples, DrawnExamples, MadeExamples, StoredExamples, load_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.source import Examples
    from repogen.source.common.call import CapturedCall, Parameters
    from repogen.spec.models import ModelSpec


_ANY = inspect.signature(lambda *inputs, **named: (inputs, named)).parameters
"""Of what takes inputs by name, or in order."""


@dataclass(frozen=True)
class Inputs:
    """What a forward is given.

    Attributes:
        specs: The inputs, in order.
        dims: Their symbolic dims.
        examples: Maker of example inputs.
        call: Where they go among the forward's arguments.
        notes: What a person should know.
    """

    specs: tuple[TensorSpec, ...]
    dims: dict[str, DimRange]
    examples: Examples
    call: Call
    notes: tuple[str, ...] = field(default=())


def find_inputs(model: ModelSpec, root: Path, parameters: Parameters) -> Inputs:
    """Return the inputs of a spec entry.

    Args:
        model: The spec entry.
        root: Directory of the spec.
        parameters: Of the forward.

    Raises:
        SourceError: The examples are not usable, or do not fit what is declared.
    """
    declared = tuple(TensorSpec(name, spec.dtype, tuple(spec.shape)) for name, spec in model.inputs.items())
    dims = dim_ranges(model.dims)
    if model.examples is None:
        return Inputs(declared, dims, DrawnExamples(model.inputs), _named(declared, parameters))
    if isinstance(model.examples, str) and ":" in model.examples:
        function = import_callable(model.examples, root)
        return _called(MadeExamples(function, model.examples, root, parameters), declared, dims)
    files = (model.examples,) if isinstance(model.examples, str) else model.examples
    return _stored(tuple(load_data(root / file) for file in files), files, declared, dims, parameters)


def examples_for(model: ModelSpec, declared: tuple[TensorSpec, ...], root: Path) -> Examples:
    """Return the maker of example inputs for what takes inputs by name, strings among them.

    Args:
        model: The spec entry.
        declared: Its inputs.
        root: Directory of the spec.

    Raises:
        SourceError: The examples are not usable.
    """
    if model.examples is None:
        return DrawnExamples(model.inputs)
    if isinstance(model.examples, str) and ":" in model.examples:
        made = MadeExamples(import_callable(model.examples, root), model.examples, root, _ANY, texts=True)
        return CalledExamples(made, declared, Signature(declared, ()).batch_dim or BATCH)
    files = (model.examples,) if isinstance(model.examples, str) else model.examples
    return StoredExamples(tuple(load_data(root / file) for file in files), ", ".join(files), declared)


def _named(specs: tuple[TensorSpec, ...], parameters: Parameters) -> Call:
    return named_call(parameters, tuple(spec.name for spec in specs))


def _stored(
    stored: tuple[dict[str, Array], ...],
    files: tuple[str, ...],
    declared: tuple[TensorSpec, ...],
    dims: dict[str, DimRange],
    parameters: Parameters,
) -> Inputs:
    reference, notes = ", ".join(files), tuple[str, ...]()
    if not declared and len(stored) > 1:
        declared, dims = _compared(stored, dims)
        notes = (_found(dims, reference),)
    specs = declared or found_inputs(stored[0], {})
    return Inputs(specs, dims, StoredExamples(stored, reference, specs), _named(specs, parameters), notes)


def _compared(
    stored: Sequence[Arrays], dims: dict[str, DimRange]
) -> tuple[tuple[TensorSpec, ...], dict[str, DimRange]]:
    """Find dims in data files: axes that differ from file to file, those that always agree being one dim."""
    names: dict[tuple[int, ...], str] = {}
    specs = []
    for name, array in stored[0].items():
        shape: list[Dim] = list(array.shape)
        for axis in range(array.ndim):
            seen = tuple(_size(other, name, axis, array.ndim) for other in stored)
            if len(set(seen)) > 1:
                fresh = BATCH if axis == 0 and BATCH not in names.values() else f"{name}_axis{axis}"
                shape[axis] = names.setdefault(seen, fresh)
        specs.append(TensorSpec(name, _dtype_name(name, array.dtype), tuple(shape)))
    return tuple(specs), {name: dims.get(name) or _seen_range(name, seen) for seen, name in names.items()}


def _seen_range(name: str, seen: tuple[int, ...]) -> DimRange:
    """Return the bounds of a dim that examples showed: what they span, and at least the usual batch."""
    if name == BATCH:
        return FOUND_BATCH
    return DimRange(min(seen), max(seen), max(2, *seen))


def _size(arrays: Arrays, name: str, axis: int, rank: int) -> int:
    if name not in arrays or arrays[name].ndim != rank:
        raise _unlike(name)
    return int(arrays[name].shape[axis])


def _unlike(name: str) -> SourceError:
    return SourceError(
        f"example {name!r} is not there, or has another rank, in an example of another size",
        "give the same names and ranks for every size",
        code="source.examples-fit",
    )


def _called(made: MadeExamples, declared: tuple[TensorSpec, ...], dims: dict[str, DimRange]) -> Inputs:
    batch = Signature(declared, ()).batch_dim or BATCH
    if declared:
        sizes = {name: dim.example for name, dim in dims.items()}
        taken, arrays = made.take(sizes, batch, 0)
        call = _declared_call(taken, arrays, declared, made)
        return Inputs(declared, dims, CalledExamples(made, declared, batch), call, _constants(taken))
    specs, dims, taken = _vary(made, dims)
    notes = (_found(dims, made.reference), *_constants(taken))
    return Inputs(specs, dims, CalledExamples(made, specs, batch), taken.call, notes)


def _declared_call(taken: CapturedCall, arrays: Arrays, declared: tuple[TensorSpec, ...], made: MadeExamples) -> Call:
    """Return the examples' own call, its slots in the order of the declared inputs."""
    names = [spec.name for spec in declared]
    if set(names) == set(arrays):
        return reorder(taken.call, [names.index(name) for name in arrays])
    if set(names) & set(arrays) or len(names) != len(arrays):
        return named_call(made.parameters, tuple(names))  # fit tells what is missing
    return taken.call


def reorder(call: Call, places: list[int]) -> Call:
    """Return a call whose n-th slot takes the tensor at ``places[n]``."""
    args, kwargs = call.fill(tuple(Placeholder(place) for place in places))
    return Call(args, kwargs)


def _constants(taken: CapturedCall) -> tuple[str, ...]:
    return (f"baked into the graph, as in the examples: {', '.join(taken.constants)}",) if taken.constants else ()


def _found(dims: Mapping[str, DimRange], reference: str) -> str:
    if not dims:
        return f"no axis of what {reference!r} gives follows the batch: every dim is fixed"
    ranges = ", ".join(f"{name} {dim.min} to {dim.max}" for name, dim in dims.items())
    return f"dims found by comparing examples of two sizes: {ranges} (dims: in the spec sets other bounds)"


def _vary(
    made: MadeExamples, dims: dict[str, DimRange]
) -> tuple[tuple[TensorSpec, ...], dict[str, DimRange], CapturedCall]:
    """Find the inputs and their dims: each dim, and the batch, is given two sizes, and the axes that follow are it."""
    tried = dims if BATCH in dims else {**dims, BATCH: FOUND_BATCH}
    sizes = {name: dim.example for name, dim in tried.items()}
    taken, base = made.take(sizes, BATCH, 0)
    others = {name: made.take({**sizes, name: dim.other}, BATCH, 0)[1] for name, dim in tried.items()}
    inputs = found_inputs(base, others)
    for name, dim in tried.items():
        _refuse_derived(name, (dim.example, dim.other), base, others[name], made.reference)
    used = {dim for spec in inputs for dim in spec.shape}
    if idle := [name for name in dims if name not in used]:
        raise SourceError(
            f"no axis of what {made.reference!r} returns follows dim {idle[0]!r}",
            f"let it take {idle[0]} as an argument, or remove the dim",
            code="source.dim-unused",
            where=made.reference,
        )
    return inputs, {name: dim for name, dim in tried.items() if name in used}, taken


def _refuse_derived(dim: str, sizes: tuple[int, int], base: Arrays, other: Arrays, reference: str) -> None:
    """Refuse an axis that follows a dim without being it, as twice the batch: no size could be chosen for it alone."""
    for name, array in base.items():
        for axis, seen in enumerate(zip(array.shape, other[name].shape, strict=True)):
            if seen[0] != seen[1] and seen != sizes:
                raise SourceError(
                    f"axis {axis} of {name!r} in what {reference!r} gives is {seen[0]} where {dim} is {sizes[0]}, and "
                    f"{seen[1]} where it is {sizes[1]}: it follows {dim}, and no config can say how",
                    f"take it apart in forward: x.reshape({dim}, {seen[0] // max(sizes[0], 1)}, …); or declare inputs: "
                    "with a dim of its own there, if the model takes any size of it",
                    code="source.derived-dim",
                    where=reference,
                )


def found_inputs(first: Arrays, others: Mapping[str, Arrays]) -> tuple[TensorSpec, ...]:
    """Take the signature from example arrays; an axis that differs where one dim has another size is that dim."""
    specs = []
    for name, array in first.items():
        shape: list[Dim] = list(array.shape)
        for dim, arrays in others.items():
            other = arrays[name].shape if name in arrays else None
            if other is None or len(other) != array.ndim:
                raise _unlike(name)
            shape = [dim if size != now else was for size, now, was in zip(array.shape, other, shape, strict=True)]
        specs.append(TensorSpec(name, _dtype_name(name, array.dtype), tuple(shape)))
    return tuple(specs)


def _dtype_name(name: str, dtype: object) -> str:
    known = str(dtype)
    if known not in DTYPES:
        raise SourceError(
            f"example {name!r} has dtype {known}, which Triton's ONNX Runtime backend does not take",
            f"use one of {', '.join(DTYPES)}",
            code="source.dtype",
        )
    return known
