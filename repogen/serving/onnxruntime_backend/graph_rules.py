"""The rules of NVIDIA's C++ onnxruntime backend for a config, as pure functions on the config's JSON form.

Runs inside Triton's Python stub on Python 3.10-3.12 and imports only the standard library. Rules and error messages
follow Triton's onnxruntime_backend (src/onnxruntime.cc, src/onnxruntime_utils.cc), so that a config that is rejected
here is rejected in production with the same message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_MAX_BATCH_SIZE = 4
"""Triton's ``--backend-config=default-max-batch-size``."""

_CONFIG_TYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "string": "STRING",
}

Config = dict[str, Any]
"""A model's or tensor's config in Triton's JSON form."""


class Refusal(Exception):  # noqa: N818 - the backend's answer to the server, not an error of the backend
    """The model cannot be served with this config; the text is the message that Triton reports."""


@dataclass(frozen=True)
class GraphTensor:
    """An input, output or overridable initializer of the graph.

    Attributes:
        name: Its name.
        config_type: For example ``TYPE_FP32``; ``TYPE_INVALID`` for a type that Triton does not support.
        dims: Full shape; -1 for a dynamic dim; empty for a scalar.
    """

    name: str
    config_type: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """The signature of an ONNX model as ONNX Runtime reports it."""

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    initializers: tuple[GraphTensor, ...] = ()


def graph_tensor(name: str, onnx_type: str, shape: Sequence[object]) -> GraphTensor:
    """Return one tensor of ONNX Runtime's signature as Triton describes it.

    Args:
        name: Tensor name.
        onnx_type: ONNX Runtime's type, for example ``tensor(float)``.
        shape: ONNX Runtime's shape; a dynamic dim is a string or None.

    Raises:
        Refusal: It is not a tensor but a sequence, map or optional.
    """
    if not onnx_type.startswith("tensor("):
        raise Refusal(f"Unsupported ONNX Type '{onnx_type}' for I/O '{name}', expected 'ONNX_TYPE_TENSOR'.")
    element = onnx_type[len("tensor(") : -1]
    dims = tuple(dim if isinstance(dim, int) else -1 for dim in shape)
    return GraphTensor(name, f"TYPE_{_CONFIG_TYPES.get(element, 'INVALID')}", dims)


def check(config: Config, graph: Graph) -> None:
    """Check a config against a graph by the rules of NVIDIA's backend.

    Raises:
        Refusal: A rule is violated; the first one, as in the C++ backend.
    """
    _check_supported(config)
    _check_inputs(config, graph)
    _check_outputs(config, graph)


def complete(config: Config, graph: Graph) -> None:
    """Fill in the missing fields of a config, in place, as the C++ backend's auto-completion does.

    Raises:
        Refusal: ``max_batch_size`` is set and not all first dims of the graph are dynamic.
    """
    _complete_batching(config, graph)
    batching = config["max_batch_size"] > 0
    if not config.get("input"):
        config["input"] = [_completed(tensor, batching=batching) for tensor in graph.inputs]
    if not config.get("output"):
        config["output"] = [_completed(tensor, batching=batching) for tensor in graph.outputs]


def is_complete(config: Config) -> bool:
    """Return whether a config declares both inputs and outputs, so that auto-completion has no effect."""
    return bool(config.get("input")) and bool(config.get("output"))


def _complete_batching(config: Config, graph: Graph) -> None:
    batchable = all(tensor.dims[:1] == (-1,) for tensor in (*graph.inputs, *graph.outputs))
    declared = config.get("max_batch_size", 0)
    if not batchable and declared:
        raise Refusal(
            f"autofill failed for model '{config['name']}': model does not support batching while non-zero "
            "max_batch_size is specified"
        )
    config["max_batch_size"] = declared or (DEFAULT_MAX_BATCH_SIZE if batchable else 0)
    scheduled = "sequence_batching" in config or "dynamic_batching" in config
    if config["max_batch_size"] > 1 and not scheduled:
        config["dynamic_batching"] = {}


def _completed(tensor: GraphTensor, *, batching: bool) -> Config:
    dims = list(tensor.dims[1:] if batching else tensor.dims)
    completed: Config = {"name": tensor.name, "data_type": tensor.config_type, "dims": dims or [1]}
    if not dims and batching:
        completed["reshape"] = {"shape": []}
    return completed


def _check_supported(config: Config) -> None:
    """Reject features that this backend, unlike NVIDIA's, does not support."""
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    for accelerator in accelerators.get("cpu_execution_accelerator", ()):
        raise Refusal(f"unknown Execution Accelerator '{accelerator.get('name')}' is requested")


def _check_inputs(config: Config, graph: Graph) -> None:
    name = config["name"]
    declared = config.get("input", [])
    controls = _check_controls(config, graph)
    required = sum(1 for tensor in declared if not tensor.get("optional")) + controls + len(states_of(config))
    required += len(config.get("batch_input", ()))
    if required != len(graph.inputs):
        raise Refusal(
            f"unable to load model '{name}', configuration expects {required} inputs, "
            f"model provides {len(graph.inputs)}"
        )
    allowed = {tensor.name: tensor for tensor in (*graph.inputs, *graph.initializers)}
    for tensor in declared:
        if tensor.get("optional") and config.get("max_batch_size", 0) != 0:
            raise Refusal(
                f"unable to load model '{name}', optional input '{tensor['name']}' is not supported for models "
                "that support batching"
            )
        if tensor.get("allow_ragged_batch"):
            _check_ragged(config, tensor, allowed)
        _check_tensor(config, tensor, allowed, "input", compared=not tensor.get("allow_ragged_batch"))


def _check_ragged(config: Config, tensor: Config, allowed: Mapping[str, GraphTensor]) -> None:
    name, dims = tensor["name"], allowed[tensor["name"]].dims if tensor["name"] in allowed else (-1,)
    reason = "which is not supported for optional input" if tensor.get("optional") else f"model provides {_text(dims)}"
    if tensor.get("optional") or dims != (-1,):
        raise Refusal(
            f"unable to load model '{config['name']}', configuration expects model provides input with shape [-1]  "
            f"for ragged input '{name}', {reason}"
        )


def scatter_sources_of(config: Config) -> dict[str, str]:
    """Return the source input of each output that Triton splits by the shapes of the requests."""
    return {name: entry["source_input"][0] for entry in config.get("batch_output", ()) for name in entry["target_name"]}


def controls_of(config: Config) -> dict[str, str]:
    """Return the control tensors of Triton's sequence batcher, with their types."""
    entries = config.get("sequence_batching", {}).get("control_input", [])
    return {entry["name"]: _control_type(control) for entry in entries for control in entry.get("control", [])}


def states_of(config: Config) -> dict[str, str]:
    """Return the states that are kept between requests: the input of each, and the output that updates it."""
    return {state["input_name"]: state["output_name"] for state in config.get("sequence_batching", {}).get("state", [])}


def _control_type(control: Config) -> str:
    pairs = (("int32_false_true", "INT32"), ("fp32_false_true", "FP32"), ("bool_false_true", "BOOL"))
    flag_type = next((f"TYPE_{name}" for key, name in pairs if control.get(key)), None)
    return flag_type or str(control.get("data_type", "TYPE_INVALID"))


def _check_controls(config: Config, graph: Graph) -> int:
    """Check each control tensor against the graph; return the number of control tensors."""
    inputs, model = {tensor.name: tensor for tensor in graph.inputs}, config["name"]
    controls = controls_of(config)
    for name, config_type in controls.items():
        if name not in inputs:
            raise Refusal(f"configuration specified sequence control '{name}', but model does not provide that input")
        dims = inputs[name].dims[1:] if config.get("max_batch_size", 0) > 0 else inputs[name].dims
        prefix = f"unable to load model '{model}', sequence control '{name}'"
        if dims != (1,):
            raise Refusal(f"{prefix} in model has dims {_text(dims)} but dims [1] is expected")
        if config_type != inputs[name].config_type:
            raise Refusal(
                f"{prefix}, the model expects data-type {inputs[name].config_type} but the model configuration "
                f"specifies data-type {config_type}"
            )
    return len(controls)


def _check_outputs(config: Config, graph: Graph) -> None:
    allowed, scattered = {tensor.name: tensor for tensor in graph.outputs}, scatter_sources_of(config)
    for tensor in config.get("output", []):
        _check_tensor(config, tensor, allowed, "output", compared=tensor["name"] not in scattered)


def _check_tensor(
    config: Config, tensor: Config, allowed: Mapping[str, GraphTensor], role: str, *, compared: bool
) -> None:
    # Triton's JSON has a number for a type without a name.
    model, name, declared_type = config["name"], tensor["name"], str(tensor["data_type"])
    if name not in allowed:
        raise Refusal(f"unexpected inference {role} '{name}', allowed {role}s are: {', '.join(sorted(allowed))}")
    actual = allowed[name]
    if declared_type.removeprefix("TYPE_") not in _CONFIG_TYPES.values():
        raise Refusal(f"unsupported datatype {declared_type} for {role} '{name}' for model '{model}'")
    if declared_type != actual.config_type:
        raise Refusal(
            f"unable to load model '{model}', configuration expects datatype {declared_type} for {role} '{name}', "
            f"model provides {actual.config_type}"
        )
    if not compared:
        return
    dims = model_dims(tensor)
    if actual.dims:
        _check_dims(config, actual, dims, exact=role == "output")
    elif any(dim != 1 for dim in dims):
        raise Refusal(
            f"unable to load model '{model}', scalar tensor '{name}', should only provide 1 in the model configuration "
            f"when the model doesn't support batching. Model configuration provided: {_text(dims)}."
        )


def _check_dims(config: Config, actual: GraphTensor, dims: tuple[int, ...], *, exact: bool) -> None:
    where = f"model '{config['name']}', tensor '{actual.name}'"
    batching = config.get("max_batch_size", 0) > 0
    if batching and actual.dims[0] != -1:
        raise Refusal(
            f"{where}: for the model to support batching the shape should have at least 1 dimension and the first "
            f"dimension must be -1; but shape expected by the model is {_text(actual.dims)}"
        )
    full = (-1, *dims) if batching else dims
    pairs = zip(actual.dims, full, strict=False)
    if len(full) == len(actual.dims) and all(_matches(graph_dim, config_dim, exact) for graph_dim, config_dim in pairs):
        return
    shape = (
        "dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, "
        f"making complete shape {_text(full)})"
        if batching
        else f"dimensions (shape {_text(full)})"
    )
    raise Refusal(
        f"{where}: the model expects {len(actual.dims)} dimensions (shape {_text(actual.dims)}) but the model "
        f"configuration specifies {len(full)} {shape}"
    )


def _matches(graph_dim: int, config_dim: int, exact: bool) -> bool:  # noqa: FBT001 - a private predicate
    """Return whether a declared dim matches the graph's; an input may be fixed where the graph's dim is dynamic."""
    return graph_dim == config_dim or (graph_dim == -1 and not exact)


def model_dims(tensor: Config) -> tuple[int, ...]:
    """Return the dims that the model receives or returns, without the batch."""
    return int_dims(tensor["reshape"].get("shape", []) if "reshape" in tensor else tensor["dims"])


def int_dims(dims: Sequence[object]) -> tuple[int, ...]:
    """Return dims as ints: Triton's JSON contains int64 as numbers or, in some versions, as strings."""
    return tuple(int(str(dim)) for dim in dims)


def _text(dims: Sequence[int]) -> str:
    return f"[{','.join(str(dim) for dim in dims)}]"
