"""Completes sections of a config from the graph: sequence_batching, batch_input, batch_output and model_warmup."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.tensors import DTYPES
from repogen.errors import ConfigError
from repogen.triton_config.render.config_sections import excessive_warmups
from repogen.triton_config.render.tensors import control_names, declared_inputs, find_tensor, graph_view
from repogen.triton_config.text.dims import client_dims, config_dims

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message
    from tritonclient.grpc.model_config_pb2 import ModelSequenceBatching

    from repogen.artifacts.tensors import TensorSpec
    from repogen.triton_config.render.model_facts import ModelFacts
    from repogen.triton_config.sections.model import TritonSpec, WarmupSpec
    from repogen.triton_config.text.view import TensorView

PAIR_KEYS = {"INT32": "int32_false_true", "FP32": "fp32_false_true", "BOOL": "bool_false_true"}
"""The field with the values for false and true, by data type."""


def complete_from_graph(message: Message, triton: TritonSpec, facts: ModelFacts) -> None:
    """Add names, types, dims and data from the graph to the sections of a config.

    Args:
        message: The result of ``section_config``; changed in place.
        triton: The same section.
        facts: The graph's tensors and the files that the config names.

    Raises:
        ConfigError: A tensor is not in the graph or has a type that Triton cannot fill; a warmup needs a size.
    """
    for index, control_input in enumerate(message.sequence_batching.control_input):
        _complete_controls(control_input, facts, facts.where(f"sequence_batching.control_input[{index}]"))
    for index, state in enumerate(message.sequence_batching.state):
        _complete_state(state, facts, facts.where(f"sequence_batching.state[{index}]"))
    for index, batch_input in enumerate(message.batch_input):
        where = facts.where(f"batch_input[{index}]")
        target = find_tensor(facts.signature.inputs, batch_input.target_name[0], "batch_input", where)
        find_tensor(facts.signature.inputs, batch_input.source_input[0], "source_input", where)
        batch_input.data_type = batch_input.data_type or f"TYPE_{DTYPES[target.dtype].triton}"
    for index, batch_output in enumerate(message.batch_output):
        where = facts.where(f"batch_output[{index}]")
        find_tensor(facts.signature.outputs, batch_output.target_name[0], "batch_output", where)
        find_tensor(facts.signature.inputs, batch_output.source_input[0], "source_input", where)
    _complete_warmups(message, triton, facts)


def _complete_controls(control_input: ModelSequenceBatching.ControlInput, facts: ModelFacts, where: str) -> None:
    tensor = find_tensor(facts.signature.inputs, control_input.name, "control input", where)
    dtype = DTYPES[tensor.dtype].triton
    for control in control_input.control:
        kind = type(control).Kind.Name(control.kind)
        if kind == "CONTROL_SEQUENCE_CORRID":
            control.data_type = control.data_type or f"TYPE_{dtype}"
        elif not any(getattr(control, key) for key in PAIR_KEYS.values()):
            if dtype not in PAIR_KEYS:
                raise ConfigError(
                    f"Triton fills {kind} as INT32, FP32 or BOOL, but input {tensor.name!r} is {dtype}",
                    "cast it inside the model",
                    code="RG120",
                    where=where,
                )
            getattr(control, PAIR_KEYS[dtype]).extend([False, True] if dtype == "BOOL" else [0, 1])


def _complete_state(state: ModelSequenceBatching.State, facts: ModelFacts, where: str) -> None:
    tensor = find_tensor(facts.signature.inputs, state.input_name, "state input", where)
    find_tensor(facts.signature.outputs, state.output_name, "state output", where)
    state.data_type = state.data_type or f"TYPE_{DTYPES[tensor.dtype].triton}"
    if not state.dims:
        state.dims.extend(config_dims(tensor.shape, batched=facts.batched)[0])
    if not state.initial_state:  # otherwise Triton starts the state with uninitialized memory
        state.initial_state.add(zero_data=True)
    initial = state.initial_state[0]
    initial.name = initial.name or state.input_name
    initial.data_type = initial.data_type or state.data_type
    if not initial.dims:
        initial.dims.extend(state.dims)
    if any(size < 1 for size in initial.dims):
        raise ConfigError(
            f"state {state.input_name!r} has a dynamic dim, which needs a size at the start of a sequence",
            "initial_state: [{zero_data: true, dims: […]}]",
            code="config.initial-state",
            where=where,
        )
    if initial.data_file:
        initial.data_file = _state_file(initial.data_file, tensor, list(initial.dims), facts, where)


def _state_file(path: str, tensor: TensorSpec, dims: list[int], facts: ModelFacts, where: str) -> str:
    """Return the published name of a file with initial values; Triton rejects a short file and truncates a long one."""
    file = facts.states[path]
    item = 2 if tensor.dtype == "bfloat16" else np.dtype(DTYPES[tensor.dtype].numpy).itemsize
    size = None if tensor.dtype == "string" else prod(dims) * item
    if size is not None and len(file.content) != size:
        raise ConfigError(
            f"{path} has {len(file.content)} bytes, but dims {dims} of {tensor.dtype} need {size}",
            "write the raw values, row-major and little-endian",
            code="config.initial-state",
            where=where,
        )
    return file.name


def _complete_warmups(message: Message, triton: TritonSpec, facts: ModelFacts) -> None:
    """Add the inputs of warmup requests: those that clients send, and the controls of a sequence."""
    if not triton.model_warmup:
        return
    controls = control_names(triton)
    views = {view.name: view for view in declared_inputs(triton, facts)}
    views |= {tensor.name: graph_view(tensor, facts) for tensor in facts.signature.inputs if tensor.name in controls}
    if problem := excessive_warmups(len(triton.model_warmup), [len(view.dims) for view in views.values()]):
        raise ConfigError(problem, "remove warmups", code="config.warmup", where=facts.where("model_warmup"))
    dims = dict.fromkeys(dim for tensor in facts.signature.inputs for dim in tensor.shape if isinstance(dim, str))
    for index, warmup in enumerate(triton.model_warmup):
        where = facts.where(f"model_warmup[{index}]")
        if unknown := next((dim for dim in warmup.sizes if dim not in dims), None):
            raise ConfigError(
                f"warmup {warmup.name!r} has a size for {unknown!r}, which is not a dynamic dim of an input",
                f"the dynamic dims are {', '.join(dims) or 'none'}",
                code="config.warmup",
                where=where,
            )
        for tensor in facts.signature.inputs:
            if tensor.name not in views:
                continue
            value, view = message.model_warmup[index].inputs[tensor.name], views[tensor.name]
            value.data_type = f"TYPE_{view.dtype}"
            if warmup.data == "golden":
                golden = facts.golden[tensor.name]
                value.dims.extend(client_dims(view, golden.shape))
                value.input_data_file = golden.file
            else:
                value.dims.extend(_warmup_dims(warmup, tensor, view, facts, where))
                setattr(value, f"{warmup.data}_data", True)


def _warmup_dims(
    warmup: WarmupSpec, tensor: TensorSpec, view: TensorView, facts: ModelFacts, where: str
) -> tuple[int, ...]:
    sizes = {**facts.sizes, **warmup.sizes}
    shape = tensor.shape[1:] if facts.batched and not view.allow_ragged_batch else tensor.shape
    if missing_dims := [dim for dim in shape if isinstance(dim, str) and dim not in sizes]:
        raise ConfigError(
            f"warmup {warmup.name!r} needs a size for dim {missing_dims[0]!r} of input {tensor.name!r}",
            f"sizes: {{{missing_dims[0]}: …}}",
            code="config.warmup",
            where=where,
        )
    return client_dims(view, [sizes[dim] if isinstance(dim, str) else dim for dim in shape])
