"""Inputs of a graph that exists already: its own names, types and dims, narrowed by what the spec says."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from repogen.artifacts.tensors import Array, Dim, Signature, TensorSpec
from repogen.errors import SourceError
from repogen.source.common.dims import BATCH, FOUND_BATCH, dim_ranges
from repogen.source.common.examples import BlendedExamples, DrawnExamples, StoredExamples
from repogen.source.common.inputs import find_inputs
from repogen.spec.models import DimSpec, InputSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.source import DimRange, Examples
    from repogen.spec.models import ModelSpec

_MOST = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_GENERATED = re.compile(r"[su]\d+|unk_.*|\?|None|-1")
"""Symbols that tell a reader nothing: torch.export's, and those of converters."""


@dataclass(frozen=True)
class Limits:
    """A dynamic dim of the graph.

    Attributes:
        symbol: What the graph calls it; the same in two places where sizes must agree.
        min: Least size.
        max: Largest size; None for no bound.
    """

    symbol: str
    min: int = 1
    max: int | None = None


GraphDim: TypeAlias = "int | Limits"


@dataclass(frozen=True)
class GraphInput:
    """An input as the graph has it."""

    name: str
    dtype: str
    shape: tuple[GraphDim, ...]


@dataclass(frozen=True)
class FoundInputs:
    """Inputs after the spec was heard.

    Attributes:
        specs: In the graph's order.
        dims: Their symbolic dims.
        examples: Maker of example inputs.
        undeclared: Dims whose bounds neither graph nor spec tells.
        notes: What a person should know.
    """

    specs: tuple[TensorSpec, ...]
    dims: dict[str, DimRange]
    examples: Examples
    undeclared: frozenset[str]
    notes: tuple[str, ...]


def find_graph_inputs(
    graph: tuple[GraphInput, ...], model: ModelSpec, root: Path, stored: Mapping[str, Array] | None
) -> FoundInputs:
    """Decide names, dims and examples.

    Args:
        graph: The graph's inputs.
        model: The spec entry; ``inputs:``, ``dims:`` and ``examples:`` in it may narrow, name and fill.
        root: Directory of the spec.
        stored: Example inputs that come with the graph.

    Raises:
        SourceError: The spec asks for what the graph is not.
    """
    declared = _declared(graph, model)
    names = _dim_names(graph, declared)
    specs = tuple(_spec(graph_input, declared.get(graph_input.name), names) for graph_input in graph)
    limits, batch = _limits(graph, names), Signature(specs, ()).batch_dim
    ranges = {
        name: _bounds(name, found, model.dims.get(name), batch=name == batch)
        for name, found in limits.items()
        if name in _used(specs)
    }
    _refuse_unused(model, ranges)
    dims = dim_ranges(ranges)
    undeclared = frozenset(name for name in dims if name not in model.dims and limits[name].max is None)
    drawn, safe = _drawn(specs, declared, graph, stored)
    examples = _examples(specs, model, root, drawn, _renamed(stored, graph, specs))
    notes = (*_said_dims(dims, undeclared), *_said_range(safe if model.examples is None else []))
    return FoundInputs(specs, dims, examples, undeclared, notes)


def _declared(graph: tuple[GraphInput, ...], model: ModelSpec) -> dict[str, tuple[str, InputSpec]]:
    """Return what the spec declares of each of the graph's inputs, by the graph's name: its new name, and the rest."""
    names = [graph_input.name for graph_input in graph]
    if set(model.inputs) <= set(names):
        return {name: (name, spec) for name, spec in model.inputs.items()}
    if len(model.inputs) == len(names) and not set(model.inputs) & set(names):
        return dict(zip(names, model.inputs.items(), strict=True))
    strange = [name for name in model.inputs if name not in names]
    raise SourceError(
        f"inputs: names {', '.join(strange)}, and the file's inputs are {', '.join(names)}",
        "declare those of the file that need it (inputs: may be left out), or all of them in order under new names",
        code="source.inputs-mixed",
    )


def _dim_names(graph: tuple[GraphInput, ...], declared: Mapping[str, tuple[str, InputSpec]]) -> dict[str, str]:
    """Name every symbol of the graph: as the spec does, else as the graph does, else by its place."""
    names: dict[str, str] = {}
    for graph_input in graph:
        known = declared.get(graph_input.name)
        for axis, dim in enumerate(graph_input.shape):
            wanted = known[1].shape[axis] if known and len(known[1].shape) == len(graph_input.shape) else None
            if not isinstance(dim, Limits) or not isinstance(wanted, str):
                continue
            if names.setdefault(dim.symbol, wanted) != wanted:
                raise SourceError(
                    f"the file has one dim for {names[dim.symbol]!r} and {wanted!r} (axis {axis} of input "
                    f"{graph_input.name!r})",
                    "give them one name in inputs:",
                    code="source.declared-dims",
                )
    for graph_input in graph:
        for axis, dim in enumerate(graph_input.shape):
            if isinstance(dim, Limits) and dim.symbol not in names:
                names[dim.symbol] = _dim_name(graph_input.name, axis, dim.symbol, names)
    return names


def _dim_name(tensor: str, axis: int, symbol: str, taken: Mapping[str, str]) -> str:
    if _NAME.fullmatch(symbol) and not _GENERATED.fullmatch(symbol) and symbol not in taken.values():
        return symbol
    if axis == 0 and BATCH not in taken.values():
        return BATCH
    plain = re.sub(r"\W", "_", tensor, flags=re.ASCII)[:40]
    name = f"{plain if plain[:1].isalpha() else f'input_{plain}'}_axis{axis}"
    while name in taken.values():
        name += "_"
    return name


def _spec(graph_input: GraphInput, declared: tuple[str, InputSpec] | None, names: Mapping[str, str]) -> TensorSpec:
    own: tuple[Dim, ...] = tuple(names[dim.symbol] if isinstance(dim, Limits) else dim for dim in graph_input.shape)
    if declared is None:
        return TensorSpec(graph_input.name, graph_input.dtype, own)
    name, spec = declared
    if spec.dtype != graph_input.dtype or len(spec.shape) != len(own):
        raise SourceError(
            f"input {name!r} is {graph_input.dtype} {list(own)} in the file, declared {spec.dtype} {list(spec.shape)}",
            "correct inputs:, or leave it out",
            code="source.declared-type",
        )
    for axis, (have, want) in enumerate(zip(own, spec.shape, strict=True)):
        if isinstance(have, int) and have != want:
            raise SourceError(
                f"axis {axis} of input {name!r} is declared {want!r}, but the file fixes it to {have}",
                f"write {have} in inputs:, or export the model again with that axis dynamic",
                code="export.specialized-dim",
            )
    return TensorSpec(name, graph_input.dtype, tuple(spec.shape))


def _used(specs: tuple[TensorSpec, ...]) -> set[Dim]:
    return {dim for spec in specs for dim in spec.shape}


def _limits(graph: tuple[GraphInput, ...], names: Mapping[str, str]) -> dict[str, Limits]:
    """Return the bounds of each dim by its name; several symbols of one name share the narrowest."""
    found: dict[str, Limits] = {}
    for dim in (dim for graph_input in graph for dim in graph_input.shape if isinstance(dim, Limits)):
        name = names[dim.symbol]
        known = found.get(name, dim)
        most = [limit for limit in (known.max, dim.max) if limit is not None]
        found[name] = Limits(name, max(known.min, dim.min), min(most) if most else None)
    return found


def _bounds(name: str, limits: Limits, asked: DimSpec | None, *, batch: bool) -> DimSpec:
    if asked is None:
        usual = FOUND_BATCH.max if batch else _MOST
        most = limits.max if limits.max is not None else max(usual, 2 * limits.min)
        example = max(FOUND_BATCH.example, limits.min) if batch and most > 1 else None
        return DimSpec(min=limits.min, max=most, example=example)
    if asked.min < limits.min or (limits.max is not None and asked.max > limits.max):
        allowed = f"{limits.min} to {limits.max}" if limits.max is not None else f"{limits.min} and more"
        raise SourceError(
            f"dims.{name} asks for {asked.min} to {asked.max}, and the file allows {allowed}",
            f"write dims: {{{name}: {{min: {max(asked.min, limits.min)}, max: "
            f"{min(asked.max, limits.max or asked.max)}}}}}, or export the model again with wider bounds",
            code="source.declared-size",
        )
    return asked


def _refuse_unused(model: ModelSpec, ranges: Mapping[str, DimSpec]) -> None:
    if idle := [name for name in model.dims if name not in ranges]:
        raise SourceError(
            f"dims.{idle[0]} is no dim of the file; it has {', '.join(ranges) or 'none'}",
            "use one of those names, or name the axes in inputs:",
            code="source.dim-unused",
        )


def _drawn(
    specs: tuple[TensorSpec, ...],
    declared: Mapping[str, tuple[str, InputSpec]],
    graph: tuple[GraphInput, ...],
    stored: Mapping[str, Array] | None,
) -> tuple[dict[str, InputSpec], list[str]]:
    """Return how each input would be drawn, and the integers for which nobody gave a range."""
    drawn: dict[str, InputSpec] = {}
    safe: list[str] = []
    for spec, graph_input in zip(specs, graph, strict=True):
        known = declared.get(graph_input.name)
        given = known[1] if known else None
        span, fill = (given.range, given.fill) if given else (None, None)
        if "int" in spec.dtype and span is None and fill is None and stored is None:
            span = (0, 1)  # an index into anything that has two entries, and a mask
            safe.append(spec.name)
        drawn[spec.name] = InputSpec.model_validate(
            {"dtype": spec.dtype, "shape": spec.shape, "range": span, "fill": fill}
        )
    return drawn, safe


def _renamed(
    stored: Mapping[str, Array] | None, graph: tuple[GraphInput, ...], specs: tuple[TensorSpec, ...]
) -> dict[str, Array] | None:
    if stored is None:
        return None
    return {spec.name: stored[graph_input.name] for graph_input, spec in zip(graph, specs, strict=True)}


def _examples(
    specs: tuple[TensorSpec, ...],
    model: ModelSpec,
    root: Path,
    drawn: dict[str, InputSpec],
    stored: dict[str, Array] | None,
) -> Examples:
    if model.examples is not None or stored is None:
        dims = {str(dim): DimSpec(max=2) for dim in _used(specs) if isinstance(dim, str)}
        told = model.model_copy(update={"inputs": drawn, "dims": {**dims, **model.dims}})
        return find_inputs(told, root, _parameters(specs)).examples
    fresh = [name for name, spec in drawn.items() if spec.range or spec.fill or _is_flat(stored[name])]
    kept = tuple(spec for spec in specs if spec.name not in fresh)
    return BlendedExamples(
        StoredExamples((stored,), "the example inputs in the file", kept),
        DrawnExamples({name: drawn[name] for name in fresh}),
        tuple(spec.name for spec in specs),
    )


def _is_flat(array: Array) -> bool:
    """Whether an example of floats is all one value, as ``torch.ones`` makes it: it shows nothing."""
    return array.dtype.kind == "f" and array.size > 1 and bool(np.all(array == array.flat[0]))


def _parameters(specs: tuple[TensorSpec, ...]) -> dict[str, inspect.Parameter]:
    """Return what a forward with these inputs would have; their names need not be Python's."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {spec.name: inspect.Parameter(f"input_{n}", kind) for n, spec in enumerate(specs)}


def _said_dims(dims: Mapping[str, DimRange], undeclared: frozenset[str]) -> tuple[str, ...]:
    if not undeclared:
        return ()
    ranges = ", ".join(f"{name} {dims[name].min} to {dims[name].max}" for name in dims if name in undeclared)
    return (f"the file gives no upper bound for its dynamic dims, tried were {ranges} (dims: in the spec sets others)",)


def _said_range(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    example = f"inputs: {{{names[0]}: {{range: [0, …]}}}}"
    said = f"{', '.join(names)}: integers were drawn from 0 and 1 only; give {example} or examples: to try more"
    return (said,)


def with_dims(found: FoundInputs, dims: Mapping[str, DimRange]) -> FoundInputs:
    """Return the inputs with other bounds for dims that nobody declared."""
    other = {**found.dims, **dims}
    rest = tuple(note for note in found.notes if note not in _said_dims(found.dims, found.undeclared))
    return replace(found, dims=other, notes=(*_said_dims(other, found.undeclared), *rest))
