"""The inputs and outputs that config.pbtxt declares: the graph's tensors, and the spec's settings for them."""

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
    from repogen.triton_config.render.model_facts import ModelFacts
    from repogen.triton_config.sections.model import TritonSpec
    from repogen.triton_config.sections.tensors import InputExtraSpec, OutputExtraSpec, ReshapeSpec


def declared_inputs(triton: TritonSpec, facts: ModelFacts) -> tuple[TensorView, ...]:
    """Return the inputs that clients send: those of the graph that Triton does not fill.

    Raises:
        ConfigError: The spec has settings for an unknown input, or reshapes to a shape other than the graph's.
    """
    views = _views(facts.signature.inputs, triton_fed(triton), facts)
    _check_names("input", triton.input, views, facts)
    return tuple(_with_input_settings(view, triton.input.get(name), facts) for name, view in views.items())


def declared_outputs(triton: TritonSpec, facts: ModelFacts) -> tuple[TensorView, ...]:
    """Return the outputs that clients receive: those of the graph that are not states of a sequence.

    Raises:
        ConfigError: As ``declared_inputs``.
    """
    sequence = triton.sequence_batching
    states = frozenset(state.output_name for state in sequence.state) if sequence is not None else frozenset()
    views = _views(facts.signature.outputs, states, facts)
    for entry in triton.batch_output:
        name = entry.target_name[0]
        if name in views and _is_ragged(triton, entry.source_input[0]):
            views[name] = _scattered(views[name], facts)
    _check_names("output", triton.output, views, facts)
    return tuple(_with_output_settings(view, triton.output.get(name), facts) for name, view in views.items())


def find_tensor(tensors: Iterable[TensorSpec], name: str, role: str, where: str) -> TensorSpec:
    """Return the tensor of the graph that has a name.

    Args:
        tensors: The graph's inputs or outputs.
        name: The name.
        role: The tensor's role in the spec, for the message.
        where: The key path that names it.

    Raises:
        ConfigError: The graph does not have the tensor.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    if name not in by_name:
        raise ConfigError(
            f"{role} {name!r} is not in the graph",
            f"the graph has {', '.join(map(repr, by_name)) or 'none'}",
            code="config.no-such-tensor",
            where=where,
        )
    return by_name[name]


def control_names(triton: TritonSpec) -> frozenset[str]:
    """Return the control inputs of a sequence model."""
    sequence = triton.sequence_batching
    return frozenset(tensor.name for tensor in sequence.control_input) if sequence is not None else frozenset()


def triton_fed(triton: TritonSpec) -> frozenset[str]:
    """Return the inputs that Triton fills: controls and states of a sequence, and the targets of batch_input."""
    return frozenset((*control_names(triton), *_state_inputs(triton), *_batch_input_targets(triton)))


def graph_view(tensor: TensorSpec, facts: ModelFacts) -> TensorView:
    """Return the declaration of a tensor without any settings of the spec."""
    dims, reshape = config_dims(tensor.shape, batched=facts.batched)
    return TensorView(tensor.name, DTYPES[tensor.dtype].triton, dims, reshape)


def _state_inputs(triton: TritonSpec) -> Iterator[str]:
    for state in triton.sequence_batching.state if triton.sequence_batching is not None else ():
        yield state.input_name


def _batch_input_targets(triton: TritonSpec) -> Iterator[str]:
    for entry in triton.batch_input:
        yield from entry.target_name


def _views(tensors: Iterable[TensorSpec], hidden_names: frozenset[str], facts: ModelFacts) -> dict[str, TensorView]:
    return {tensor.name: graph_view(tensor, facts) for tensor in tensors if tensor.name not in hidden_names}


def _is_ragged(triton: TritonSpec, name: str) -> bool:
    settings = triton.input.get(name)
    return settings is not None and settings.allow_ragged_batch


def _scattered(view: TensorView, facts: ModelFacts) -> TensorView:
    """Return an output whose first axis has the elements of all rows: each client receives those of its own row."""
    tensor = next(tensor for tensor in facts.signature.outputs if tensor.name == view.name)
    dims, _ = config_dims(tensor.shape, batched=False)
    return replace(view, dims=dims, reshape=None)


def _check_names(kind: str, names: Iterable[str], views: Mapping[str, TensorView], facts: ModelFacts) -> None:
    if unknown := [name for name in names if name not in views]:
        raise ConfigError(
            f"triton.{kind} contains {unknown[0]!r}, which is not an {kind} that clients see",
            f"the {kind}s are {', '.join(map(repr, views)) or 'none'}",
            code="config.no-such-tensor",
            where=facts.where(f"{kind}.{unknown[0]}"),
        )


def _with_input_settings(view: TensorView, settings: InputExtraSpec | None, facts: ModelFacts) -> TensorView:
    if settings is None:
        return view
    if settings.allow_ragged_batch:  # Triton concatenates the rows, whatever their length
        view = replace(view, dims=(-1,), reshape=None, from_spec=True)
    view = _reshape("input", view, settings.dims, settings.reshape, facts)
    image_format = "" if settings.format in {None, "FORMAT_NONE"} else str(settings.format)
    ragged, optional = settings.allow_ragged_batch, settings.optional
    return replace(view, format=image_format, allow_ragged_batch=ragged, optional=optional)


def _with_output_settings(view: TensorView, settings: OutputExtraSpec | None, facts: ModelFacts) -> TensorView:
    view = replace(view, label_filename=facts.labels.get(view.name, ""))
    return view if settings is None else _reshape("output", view, settings.dims, settings.reshape, facts)


def _reshape(
    kind: str, view: TensorView, dims: tuple[int, ...] | None, reshape: ReshapeSpec | None, facts: ModelFacts
) -> TensorView:
    """Return a view with the spec's dims for clients, which ``reshape`` converts to the graph's."""
    graph_dims = view.model_dims
    if reshape is not None and reshape.shape != graph_dims:
        raise ConfigError(
            f"{kind} {view.name!r} is reshaped to {list(reshape.shape)}, but the graph has {list(graph_dims)}",
            f"dims are the dims for clients; repogen adds reshape: {{shape: {list(graph_dims)}}}",
            code="RG114",
            where=facts.where(f"{kind}.{view.name}.reshape"),
        )
    return view if dims is None or dims == view.dims else replace(view, dims=dims, reshape=graph_dims, from_spec=True)
