"""Inputs of an existing graph: its own names, dtypes and dims, refined by the spec."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from repogen.artifacts.tensors import Array, Dim, Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.dim_names import dim_name
from repogen.source.common.examples import BlendedExamples, DrawnExamples, StoredExamples
from repogen.source.common.inputs import DEFAULT_BATCH, Inputs, dim_ranges, find_inputs
from repogen.spec.models import DimSpec, InputSpec
from repogen.triton_config.sections.base import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.source import DimRange, Examples
    from repogen.source.common.call import Call
    from repogen.spec.models import ModelSpec

_MAX_SIZE = 64


@dataclass(frozen=True)
class Limits:
    """A dynamic dim of the graph.

    Attributes:
        symbol: Its name in the graph; axes with the same symbol have the same size.
        min: Smallest size.
        max: Largest size; None if unbounded.
    """

    symbol: str
    min: int = 1
    max: int | None = None


GraphDim: TypeAlias = "int | Limits"


@dataclass(frozen=True)
class GraphInput:
    """An input of the graph."""

    name: str
    dtype: str
    shape: tuple[GraphDim, ...]


@dataclass(frozen=True)
class GraphInputs:
    """The inputs of a graph as the spec refines them.

    Attributes:
        specs: The inputs, in the graph's order.
        dims: Their symbolic dims.
        examples: Creates example inputs.
        undeclared: Dims without bounds in both the graph and the spec.
        declare: What to declare if example values were guessed; empty otherwise.
        notes: Messages for the report.
    """

    specs: tuple[TensorSpec, ...]
    dims: dict[str, DimRange]
    examples: Examples
    undeclared: frozenset[str]
    notes: tuple[str, ...]
    declare: str = ""

    def with_call(self, call: Call) -> Inputs:
        """Return the inputs of a forward that is called in this way."""
        return Inputs(self.specs, self.dims, self.examples, call, self.notes)

    def with_dims(self, dims: Mapping[str, DimRange]) -> GraphInputs:
        """Return the inputs with other bounds for undeclared dims."""
        bounds = {**self.dims, **dims}
        other_notes = tuple(note for note in self.notes if note not in _bounds_note(self.dims, self.undeclared))
        return replace(self, dims=bounds, notes=(*_bounds_note(bounds, self.undeclared), *other_notes))


def find_graph_inputs(
    graph: tuple[GraphInput, ...], model: ModelSpec, root: Path, stored: Mapping[str, Array] | None
) -> GraphInputs:
    """Determine names, dims and example inputs.

    Args:
        graph: The graph's inputs.
        model: The spec entry, whose ``inputs:``, ``dims:`` and ``examples:`` refine the graph's inputs.
        root: Directory of the spec.
        stored: Example inputs stored with the graph; None if there are none.

    Raises:
        SourceError: The spec contradicts the graph.
    """
    _check_sizes(graph)
    declared = _declared_inputs(graph, model)
    names = _dim_names(graph, declared)
    specs = tuple(_spec(graph_input, declared.get(graph_input.name), names) for graph_input in graph)
    limits, batch = _limits(graph, names), Signature(specs, ()).batch_dim
    ranges = {
        name: _bounds(name, limit, model.dims.get(name), batch=name == batch)
        for name, limit in limits.items()
        if name in _used_dims(specs)
    }
    _check_dims_used(model, ranges)
    dims = dim_ranges(ranges)
    undeclared = frozenset(name for name in dims if name not in model.dims and limits[name].max is None)
    random_specs, guessed_names = _random_specs(specs, declared, graph, stored)
    examples = _examples(specs, model, root, random_specs, _rename(stored, graph, specs))
    declare = _integers_note(guessed_names if model.examples is None else [])
    notes = (*_bounds_note(dims, undeclared), *([declare] if declare else []))
    return GraphInputs(specs, dims, examples, undeclared, notes, declare)


def _check_sizes(graph: tuple[GraphInput, ...]) -> None:
    for graph_input in graph:
        for dim in graph_input.shape:
            size = dim.min if isinstance(dim, Limits) else dim
            if not 1 <= size <= INT32_MAX:
                raise SourceError(
                    f"input {graph_input.name!r} has a dim of size {size}; valid sizes are 1 to {INT32_MAX}",
                    "export the model again with its real shape",
                    code="source.dim-size",
                )


def _declared_inputs(graph: tuple[GraphInput, ...], model: ModelSpec) -> dict[str, tuple[str, InputSpec]]:
    """Return the name in the spec and the declaration of each declared input, by the graph's name."""
    names = [graph_input.name for graph_input in graph]
    if set(model.inputs) <= set(names):
        return {name: (name, spec) for name, spec in model.inputs.items()}
    if len(model.inputs) == len(names) and not set(model.inputs) & set(names):
        return dict(zip(names, model.inputs.items(), strict=True))
    unknown = [name for name in model.inputs if name not in names]
    raise SourceError(
        f"inputs: declares {', '.join(unknown)}, but the inputs of the file are {', '.join(names)}",
        "declare only inputs of the file, or declare all of them in order under new names",
        code="source.inputs-mixed",
    )


def _dim_names(graph: tuple[GraphInput, ...], declared: Mapping[str, tuple[str, InputSpec]]) -> dict[str, str]:
    """Return a name for every symbol: from the spec, otherwise from the graph, otherwise from its tensor and axis."""
    names: dict[str, str] = {}
    for graph_input in graph:
        declaration = declared.get(graph_input.name)
        shape = declaration[1].shape if declaration else ()
        for axis, (dim, name) in enumerate(zip(graph_input.shape, shape, strict=False)):
            if not isinstance(dim, Limits) or not isinstance(name, str) or len(shape) != len(graph_input.shape):
                continue
            if names.setdefault(dim.symbol, name) != name:
                raise SourceError(
                    f"{names[dim.symbol]!r} and {name!r} are the same dim in the file (axis {axis} of input "
                    f"{graph_input.name!r})",
                    "use one name for both in inputs:",
                    code="source.declared-dims",
                )
    for graph_input in graph:
        for axis, dim in enumerate(graph_input.shape):
            if isinstance(dim, Limits) and dim.symbol not in names:
                names[dim.symbol] = dim_name(graph_input.name, axis, dim.symbol, names)
    return names


def _spec(graph_input: GraphInput, declared: tuple[str, InputSpec] | None, names: Mapping[str, str]) -> TensorSpec:
    dims: tuple[Dim, ...] = tuple(names[dim.symbol] if isinstance(dim, Limits) else dim for dim in graph_input.shape)
    if declared is None:
        return TensorSpec(graph_input.name, graph_input.dtype, dims)
    name, spec = declared
    if spec.dtype != graph_input.dtype or len(spec.shape) != len(dims):
        raise SourceError(
            f"input {name!r} is {graph_input.dtype} {list(dims)} in the file, but declared as {spec.dtype} "
            f"{list(spec.shape)}",
            "correct inputs:, or remove it",
            code="source.declared-type",
        )
    for axis, (size, declared_size) in enumerate(zip(dims, spec.shape, strict=True)):
        if isinstance(size, int) and size != declared_size:
            raise SourceError(
                f"axis {axis} of input {name!r} is declared as {declared_size!r}, but fixed to {size} in the file",
                f"write {size} in inputs:, or export the model again with that axis dynamic",
                code="export.specialized-dim",
            )
    return TensorSpec(name, graph_input.dtype, tuple(spec.shape))


def _used_dims(specs: tuple[TensorSpec, ...]) -> set[Dim]:
    return {dim for spec in specs for dim in spec.shape}


def _limits(graph: tuple[GraphInput, ...], names: Mapping[str, str]) -> dict[str, Limits]:
    """Return the bounds of each dim by name; symbols with the same name share the narrowest bounds."""
    limits: dict[str, Limits] = {}
    for dim in (dim for graph_input in graph for dim in graph_input.shape if isinstance(dim, Limits)):
        name = names[dim.symbol]
        previous = limits.get(name, dim)
        upper = [limit for limit in (previous.max, dim.max) if limit is not None]
        limits[name] = Limits(name, max(previous.min, dim.min), min(upper) if upper else None)
    return limits


def _bounds(name: str, limits: Limits, declared: DimSpec | None, *, batch: bool) -> DimSpec:
    if declared is None:
        default = DEFAULT_BATCH.max if batch else _MAX_SIZE
        upper = limits.max if limits.max is not None else max(default, 2 * limits.min)
        example = max(DEFAULT_BATCH.example, limits.min) if batch and upper > 1 else None
        return DimSpec(min=limits.min, max=upper, example=example)
    if declared.min < limits.min or (limits.max is not None and declared.max > limits.max):
        allowed = f"{limits.min} to {limits.max}" if limits.max is not None else f"{limits.min} or more"
        raise SourceError(
            f"dims.{name} is {declared.min} to {declared.max}, but the file allows {allowed}",
            f"write dims: {{{name}: {{min: {max(declared.min, limits.min)}, max: "
            f"{min(declared.max, limits.max or declared.max)}}}}}, or export the model again with wider bounds",
            code="source.declared-size",
        )
    return declared


def _check_dims_used(model: ModelSpec, ranges: Mapping[str, DimSpec]) -> None:
    if unused := [name for name in model.dims if name not in ranges]:
        raise SourceError(
            f"dims.{unused[0]} is not a dim of the file, which has {', '.join(ranges) or 'none'}",
            "use one of those names, or name the axes in inputs:",
            code="source.dim-unused",
        )


def _random_specs(
    specs: tuple[TensorSpec, ...],
    declared: Mapping[str, tuple[str, InputSpec]],
    graph: tuple[GraphInput, ...],
    stored: Mapping[str, Array] | None,
) -> tuple[dict[str, InputSpec], list[str]]:
    """Return how to draw each input, and the integer inputs whose range is a guess."""
    random_specs: dict[str, InputSpec] = {}
    guessed_names: list[str] = []
    for spec, graph_input in zip(specs, graph, strict=True):
        declaration = declared.get(graph_input.name)
        span, fill = (declaration[1].range, declaration[1].fill) if declaration else (None, None)
        if "int" in spec.dtype and span is None and fill is None and stored is None:
            span = (0, 1)  # valid for masks, and for indexes into anything with two entries
            guessed_names.append(spec.name)
        random_specs[spec.name] = InputSpec.model_validate(
            {"dtype": spec.dtype, "shape": spec.shape, "range": span, "fill": fill}
        )
    return random_specs, guessed_names


def _rename(
    stored: Mapping[str, Array] | None, graph: tuple[GraphInput, ...], specs: tuple[TensorSpec, ...]
) -> dict[str, Array] | None:
    if stored is None:
        return None
    return {spec.name: stored[graph_input.name] for graph_input, spec in zip(graph, specs, strict=True)}


def _examples(
    specs: tuple[TensorSpec, ...],
    model: ModelSpec,
    root: Path,
    random_specs: dict[str, InputSpec],
    stored: dict[str, Array] | None,
) -> Examples:
    if model.examples is not None or stored is None:
        dims = {str(dim): DimSpec(max=2) for dim in _used_dims(specs) if isinstance(dim, str)}
        complete = model.model_copy(update={"inputs": random_specs, "dims": {**dims, **model.dims}})
        return find_inputs(complete, root, _parameters(specs)).examples
    redrawn = [name for name, spec in random_specs.items() if spec.range or spec.fill or _is_flat(stored[name])]
    from_file = tuple(spec for spec in specs if spec.name not in redrawn)
    return BlendedExamples(
        StoredExamples((stored,), "the example inputs in the file", from_file),
        DrawnExamples({name: random_specs[name] for name in redrawn}),
        tuple(spec.name for spec in specs),
    )


def _is_flat(array: Array) -> bool:
    """Return whether all values of a float example are equal, as after ``torch.ones``: it tests too little."""
    return array.dtype.kind == "f" and array.size > 1 and bool(np.all(array == array.flat[0]))


def _parameters(specs: tuple[TensorSpec, ...]) -> dict[str, inspect.Parameter]:
    """Return parameters of a forward with these inputs, whose names need not be Python identifiers."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {spec.name: inspect.Parameter(f"input_{n}", kind) for n, spec in enumerate(specs)}


def _bounds_note(dims: Mapping[str, DimRange], undeclared: frozenset[str]) -> tuple[str, ...]:
    if not undeclared:
        return ()
    ranges = ", ".join(f"{name} {dims[name].min} to {dims[name].max}" for name in dims if name in undeclared)
    return (f"the file has no upper bounds for these dims, so repogen used {ranges} (set others with dims:)",)


def _integers_note(names: list[str]) -> str:
    if not names:
        return ""
    example = f"inputs: {{{names[0]}: {{range: [0, …]}}}}"
    return f"{', '.join(names)}: only the integers 0 and 1 were tested; set {example} or examples: to test more"
