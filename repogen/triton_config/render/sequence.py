"""``sequence_batching`` as a message: what the spec wishes, with the names, types and dims that the graph has."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from google.protobuf import json_format

from repogen.artifacts.tensors import DTYPES
from repogen.errors import ConfigError
from repogen.triton_config.render.find_tensor import found
from repogen.triton_config.sections.sequence import InitialStateSpec
from repogen.triton_config.text.dims import config_dims

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message
    from tritonclient.grpc.model_config_pb2 import ModelSequenceBatching

    from repogen.artifacts.tensors import TensorSpec
    from repogen.triton_config.render.model_facts import Known
    from repogen.triton_config.sections.sequence import ControlSpec, SequenceBatchingSpec, StateSpec

_CORRELATION = "CONTROL_SEQUENCE_CORRID"
_PAIRS = {"INT32": "int32_false_true", "FP32": "fp32_false_true", "BOOL": "bool_false_true"}
_SHAPES_THE_SEQUENCE = {"control_input", "state"}


def set_sequence_batching(message: Message, wish: SequenceBatchingSpec, known: Known) -> None:
    """Add ``sequence_batching`` to a config.

    Args:
        message: The config.
        wish: The spec's.
        known: The graph's tensors.

    Raises:
        ConfigError: A control or state is no tensor of the graph, or not of a type that Triton can feed.
    """
    batching = message.sequence_batching
    batching.SetInParent()
    said = wish.model_dump(mode="json", exclude=_SHAPES_THE_SEQUENCE, exclude_none=True, exclude_defaults=True)
    json_format.ParseDict(said, batching)
    for index, tensor in enumerate(wish.control_input):
        where = known.where(f"sequence_batching.control_input[{index}]")
        spec = found(known.signature.inputs, tensor.name, "control input", where)
        added = batching.control_input.add(name=tensor.name)
        for control in tensor.control:
            json_format.ParseDict(_control(control, spec, where), added.control.add())
    for index, state in enumerate(wish.state):
        _state(batching, state, known, known.where(f"sequence_batching.state[{index}]"))


def _control(wish: ControlSpec, spec: TensorSpec, where: str) -> dict[str, object]:
    said = wish.model_dump(mode="json", exclude_none=True)
    dtype = DTYPES[spec.dtype].triton
    if wish.kind == _CORRELATION:
        return {"data_type": f"TYPE_{dtype}", **said}
    if any(pair in said for pair in _PAIRS.values()):
        return said
    if dtype not in _PAIRS:
        raise ConfigError(
            f"RG120: Triton feeds {wish.kind} as INT32, FP32 or BOOL, and input {spec.name!r} is {dtype}",
            "cast it inside the model",
            code="config.RG120",
            where=where,
        )
    return {**said, _PAIRS[dtype]: [False, True] if dtype == "BOOL" else [0, 1]}


def _state(batching: ModelSequenceBatching, wish: StateSpec, known: Known, where: str) -> None:
    spec = found(known.signature.inputs, wish.input_name, "state input", where)
    found(known.signature.outputs, wish.output_name, "state output", where)
    added = batching.state.add(
        input_name=wish.input_name,
        output_name=wish.output_name,
        data_type=wish.data_type or f"TYPE_{DTYPES[spec.dtype].triton}",
        dims=wish.dims or config_dims(spec.shape, batched=known.batched)[0],
        use_same_buffer_for_input_output=wish.use_same_buffer_for_input_output,
        use_growable_memory=wish.use_growable_memory,
    )
    given = wish.initial_state[0] if wish.initial_state else InitialStateSpec(zero_data=True)
    _initial(added, given, spec, known, where)


def _initial(
    state: ModelSequenceBatching.State, wish: InitialStateSpec, spec: TensorSpec, known: Known, where: str
) -> None:
    """Say what a state begins with. Left out, it would be whatever lies in the memory that Triton takes for it."""
    dims = wish.dims or tuple(state.dims)
    if any(size < 1 for size in dims):
        raise ConfigError(
            f"state {state.input_name!r} has a dynamic dim, and needs a size for it when a sequence starts",
            "initial_state: [{zero_data: true, dims: […]}]",
            code="config.initial-state",
            where=where,
        )
    data_type = wish.data_type or state.data_type
    first = state.initial_state.add(name=wish.name or state.input_name, data_type=data_type, dims=dims)
    if wish.data_file is not None:
        first.data_file = _data_file(wish.data_file, spec, dims, known, where)
    else:
        first.zero_data = True


def _data_file(path: str, spec: TensorSpec, dims: tuple[int, ...], known: Known, where: str) -> str:
    """Return the name of a file of first values. Triton refuses one that is too short, and cuts a longer one."""
    import numpy as np  # noqa: PLC0415 - the room's import stays light

    file = known.states[path]
    wanted = None if spec.dtype == "string" else prod(dims) * np.dtype(spec.dtype).itemsize
    if wanted is not None and len(file.content) != wanted:
        raise ConfigError(
            f"{path} has {len(file.content)} bytes, and dims {list(dims)} of {spec.dtype} make {wanted}",
            "write the raw values, row-major and little-endian",
            code="config.initial-state",
            where=where,
        )
    return file.name
