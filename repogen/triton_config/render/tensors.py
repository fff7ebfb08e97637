"""Inputs and outputs as config.pbtxt declares them: what the graph says, and what the spec adds to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.errors import ConfigError
from repogen.triton_config.text.dims import config_dims
from repogen.triton_config.text.view import TensorView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repogen.artifacts.tensors import TensorSpec
    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.model import TritonSpec
    from repogen.triton_config.sections.tensors import InputExtraSpec, OutputExtraSpec, ReshapeSpec


def declared_inputs(triton: TritonSpec, known: Known) -> tuple[TensorView, ...]:
    """Return what clients send: every input of the graph but those that Triton feeds.

    Raises:
        ConfigError: The spec says something of what is none, or reshapes to another shape than the graph's.
    """
    views = _views(known.signature.inputs, fed_by_triton(triton), known)
    _refuse_unknown("input", triton.input, views, known)
    return tuple(_with_input_extra(view, triton.input.get(name), known) for name, view in views.items())


def declared_outputs(triton: TritonSpec, known: Known) -> tuple[TensorView, ...]:
    """Return what clients get: every output of the graph but the states that Triton keeps.

    Raises:
        ConfigError: As ``declared_inputs``.
    """
    views = _views(known.signature.outputs, kept_by_triton(triton), known)
    _refuse_unknown("output", triton.output, views, known)
    return tuple(_with_output_extra(view, triton.output.get(name), known) for name, view in views.items())


def fed_by_triton(triton: TritonSpec) -> frozenset[str]:
    """Return the inputs that no client sends: a sequence's controls and states, and what a batch is."""
    return frozenset((*controls_of(triton), *_states_of(triton), *_made_of_batches(triton)))


def controls_of(triton: TritonSpec) -> frozenset[str]:
    """Return the inputs that tell of a request's place in its sequence."""
    sequence = triton.sequence_batching
    return frozenset(tensor.name for tensor in sequence.control_input) if sequence is not None else frozenset()


def kept_by_triton(triton: TritonSpec) -> frozenset[str]:
    """Return the outputs that go to no client: the states that a sequence's next request begins with."""
    sequence = triton.sequence_batching
    return frozenset(state.output_name for state in sequence.state) if sequence is not None else frozenset()


def view_of(spec: TensorSpec, known: Known) -> TensorView:
    """Return a tensor as the graph alone would have it declared."""
    dims, reshape = config_dims(spec.shape, batched=known.batched)
    return TensorView(spec.name, DTYPES[spec.dtype].triton, dims, reshape)


def _states_of(triton: TritonSpec) -> Iterator[str]:
    for state in triton.sequence_batching.state if triton.sequence_batching is not None else ():
        yield state.input_name


def _made_of_batches(triton: TritonSpec) -> Iterator[str]:
    for entry in triton.batch_input:
        yield from entry.target_name


def _views(specs: Iterable[TensorSpec], others: frozenset[str], known: Known) -> dict[str, TensorView]:
    return {spec.name: view_of(spec, known) for spec in specs if spec.name not in others}


def _refuse_unknown(kind: str, said: Iterable[str], views: Mapping[str, TensorView], known: Known) -> None:
    if unknown := [name for name in said if name not in views]:
        raise ConfigError(
            f"triton.{kind} names {unknown[0]!r}, which is no {kind} that clients see",
            f"there are {', '.join(map(repr, views)) or 'none'}",
            code="config.no-such-tensor",
            where=known.where(f"{kind}.{unknown[0]}"),
        )


def _with_input_extra(view: TensorView, extra: InputExtraSpec | None, known: Known) -> TensorView:
    if extra is None:
        return view
    if extra.allow_ragged_batch:  # its rows come one behind the other, of whatever length
        view = replace(view, dims=(-1,), reshape=None, from_spec=True)
    view = _reshaped("input", view, extra.dims, extra.reshape, known)
    image = "" if extra.format in {None, "FORMAT_NONE"} else str(extra.format)
    return replace(view, format=image, allow_ragged_batch=extra.allow_ragged_batch, optional=extra.optional)


def _with_output_extra(view: TensorView, extra: OutputExtraSpec | None, known: Known) -> TensorView:
    view = replace(view, label_filename=known.labels.get(view.name, ""))
    return view if extra is None else _reshaped("output", view, extra.dims, extra.reshape, known)


def _reshaped(
    kind: str, view: TensorView, dims: tuple[int, ...] | None, reshape: ReshapeSpec | None, known: Known
) -> TensorView:
    """Let clients see a tensor in other dims than the graph's; ``reshape`` leads from them to the graph's."""
    graph = view.model_dims
    if reshape is not None and reshape.shape != graph:
        raise ConfigError(
            f"RG114: {kind} {view.name!r} is reshaped to {list(reshape.shape)}, and the graph has {list(graph)}",
            f"dims: what clients see; repogen writes reshape: {{shape: {list(graph)}}} by itself",
            code="config.RG114",
            where=known.where(f"{kind}.{view.name}.reshape"),
        )
    return view if dims is None or dims == view.dims else replace(view, dims=dims, reshape=graph, from_spec=True)
