"""Rules between a config.pbtxt and the ONNX graph, and between the graph and the target release."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_onnx
from repogen.triton_config.text.dims import config_dims
from repogen.triton_config.text.view import TensorView, dims_text, dtype_name, tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelSequenceBatching

    from repogen.artifacts.tensors import Signature, TensorSpec
    from repogen.targets import Target

_GUESSED_BATCH = 4  # Triton's default-max-batch-size


def graph_findings(config: ModelConfig, signature: Signature, spare: Sequence[TensorSpec] = ()) -> list[Finding]:
    """Return every rule of the RG2 family that a config breaks over a graph.

    Args:
        config: The parsed config.
        signature: What the graph must be given and answers, full shapes.
        spare: What it may be given beyond that: its initializers that can be overridden.
    """
    if not is_onnx(config):
        return []
    found = [*_inputs_named(config, signature, spare), *_outputs_named(config, signature)]
    found.extend(_completed(config, signature))
    batch = batch_size(config, signature)
    for kind, tensors, specs in (
        ("input", config.input, (*signature.inputs, *spare)),
        ("output", config.output, signature.outputs),
    ):
        by_name = {tensor.name: (index, tensor) for index, tensor in enumerate(tensor_views(tensors))}
        for spec in specs:
            what = f"{kind} {spec.name!r}"
            if spec not in spare:
                found.extend(_servable(what, spec))
            if spec.name in by_name:
                index, tensor = by_name[spec.name]
                ragged = getattr(tensors[index], "allow_ragged_batch", False)
                path = f"{kind}[{index}]"
                found.extend(_declared(kind, path, tensor, spec, batch, ragged=ragged))
    return [*found, *_states(config, signature), *_controls(config, signature)]


def target_findings(opset: int, ir_version: int, target: Target) -> list[Finding]:
    """Return every rule of the RG3 family that a graph breaks: is it too new for the ``target`` release?"""
    found = []
    release = f"Triton {target.release} (ONNX Runtime {target.onnxruntime})"
    if opset > target.max_opset:
        message = f"the graph has opset {opset}, and {release} loads up to {target.max_opset}"
        found.append(Finding("RG301", "error", message, f"export with opset {target.max_opset}, or raise the target"))
    if ir_version > target.max_ir:
        message = f"the graph has IR version {ir_version}, and {release} loads up to {target.max_ir}"
        found.append(Finding("RG302", "error", message, "export with an older onnx, or raise the target"))
    return found


def batch_size(config: ModelConfig, signature: Signature) -> int:
    """Return the largest batch that a model gets: Triton guesses where inputs or outputs are left out."""
    given: int = config.max_batch_size
    if given or (config.input and config.output) or _fixed(signature):
        return given
    return _GUESSED_BATCH


def _completed(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    if config.max_batch_size and not (config.input and config.output) and (fixed := _fixed(signature)):
        message = f"max_batch_size is {config.max_batch_size}, and what Triton has to fill in has no dynamic first dim"
        hint = f"{', '.join(map(repr, fixed))}: set max_batch_size: 0, and declare inputs and outputs"
        yield Finding("RG208", "error", message, hint, "max_batch_size", "max_batch_size: 0")


def _fixed(signature: Signature) -> list[str]:
    return [spec.name for spec in (*signature.inputs, *signature.outputs) if not _batches(spec)]


def _batches(spec: TensorSpec) -> bool:
    return bool(spec.shape) and isinstance(spec.shape[0], str)


def _fed_by_triton(config: ModelConfig) -> list[str]:
    """Return the graph's inputs that Triton itself fills: a sequence's controls and states, and what a batch is."""
    sequence = config.sequence_batching
    return [
        *(tensor.name for tensor in sequence.control_input),
        *(state.input_name for state in sequence.state),
        *(name for entry in config.batch_input for name in entry.target_name),
    ]


def _states(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    """Yield states that are not as the graph has them: Triton hands them on as they are."""
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    for index, state in enumerate(config.sequence_batching.state):
        path = f"sequence_batching.state[{index}]"
        for kind, name, specs in (("input", state.input_name, inputs), ("output", state.output_name, outputs)):
            if name in specs:
                tensor = TensorView(name, dtype_name(state.data_type), tuple(state.dims))
                # An output's dims must be the graph's own, and so must those of a state, on either side.
                for finding in _declared("output", path, tensor, specs[name], config.max_batch_size, ragged=False):
                    yield replace(finding, message=finding.message.replace("output", f"state {kind}", 1))


def _controls(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    specs = {spec.name: spec for spec in signature.inputs}
    for index, tensor in enumerate(config.sequence_batching.control_input):
        for control in tensor.control if tensor.name in specs else ():
            said = _control_dtype(control)
            dtype = DTYPES.get(specs[tensor.name].dtype)
            if said and dtype is not None and said != dtype.triton:
                message = f"control input {tensor.name!r} is TYPE_{said} in the config and {dtype.name} in the graph"
                path = f"sequence_batching.control_input[{index}]"
                yield Finding("RG205", "error", message, "give it the graph's type", path)
        if tensor.name in specs:
            yield from _control_shape(index, specs[tensor.name], batched=config.max_batch_size > 0)


def _control_shape(index: int, spec: TensorSpec, *, batched: bool) -> Iterator[Finding]:
    """Yield a control of another shape than one number a row, which is what the backend looks for."""
    rows = spec.shape[1:] if batched else spec.shape
    if rows != (1,):
        message = f"control input {spec.name!r} has dims {dims_text(spec.shape)} in the graph, and Triton feeds "
        message += "one number a row" if batched else "one number"
        hint = f"give it the shape {'[batch, 1]' if batched else '[1]'} in the model"
        yield Finding("RG206", "error", message, hint, f"sequence_batching.control_input[{index}]")


def _control_dtype(control: ModelSequenceBatching.ControlInput.Control) -> str:
    """Return the type of a control's values; empty when it is not said."""
    pairs = (
        ("INT32", control.int32_false_true), ("FP32", control.fp32_false_true), ("BOOL", control.bool_false_true),
    )  # fmt: skip
    given = next((name for name, values in pairs if values), dtype_name(control.data_type))
    return "" if given == "INVALID" else given


def _inputs_named(config: ModelConfig, signature: Signature, spare: Sequence[TensorSpec]) -> Iterator[Finding]:
    graph = [spec.name for spec in signature.inputs]
    known = {*graph, *(spec.name for spec in spare)}
    given = [tensor.name for tensor in config.input]
    fed = set(_fed_by_triton(config))
    for index, name in enumerate(given):
        if name not in known:
            message = f"input {name!r} is not in the graph"
            yield Finding("RG201", "error", message, f"the graph has {_names(graph)}", f"input[{index}].name")
    for spec in signature.inputs:
        # a config without any input is a guess of Triton's, which RG113 tells of
        if given and spec.name not in given and spec.name not in fed:
            message = f"the graph's input {spec.name!r} is not declared"
            yield Finding("RG202", "error", message, "declare it", "input", _lines(spec, config.max_batch_size))
    yield from _optional(config, graph, {spec.name for spec in spare})
    yield from _filled(config, given, known)


def _filled(config: ModelConfig, given: list[str], known: set[str]) -> Iterator[Finding]:
    """Yield what is wrong with inputs that Triton is to fill."""
    fed = Counter(_fed_by_triton(config))
    for name, times in fed.items():
        if times > 1:
            message = f"Triton is to fill the input {name!r} {times} times"
            yield Finding("RG201", "error", message, "keep one of them", _filler(config))
        if name in given:
            message = f"input {name!r} is declared, and Triton is to fill it, too"
            yield Finding("RG201", "error", message, "drop it from input", f"input[{given.index(name)}]")
        if name not in known:
            message = f"Triton is to fill the input {name!r}, which is not in the graph"
            yield Finding("RG201", "error", message, f"the graph has {_names(sorted(known))}", _filler(config))


def _filler(config: ModelConfig) -> str:
    return "batch_input" if config.batch_input else "sequence_batching"


def _optional(config: ModelConfig, required: Sequence[str], spare: set[str]) -> Iterator[Finding]:
    """Yield inputs that are optional on one side only; the backend compares how many must be given."""
    for index, tensor in enumerate(config.input):
        if tensor.optional and tensor.name in required:
            message = f"input {tensor.name!r} is optional in the config, and the graph needs it"
            yield Finding("RG202", "error", message, "drop optional", f"input[{index}].optional")
        elif tensor.name in spare and not tensor.optional:
            message = f"input {tensor.name!r} has a value in the graph, and is not optional in the config"
            yield Finding("RG202", "error", message, "write optional: true, or drop the input", f"input[{index}]")


def _outputs_named(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    graph = [spec.name for spec in signature.outputs]
    given = [tensor.name for tensor in config.output]
    states = {state.output_name for state in config.sequence_batching.state}
    for index, name in enumerate(given):
        if name not in graph:
            message = f"output {name!r} is not in the graph"
            yield Finding("RG203", "error", message, f"the graph has {_names(graph)}", f"output[{index}].name")
    for name in sorted(states - set(graph)):
        message = f"Triton is to keep the output {name!r}, which is not in the graph"
        yield Finding("RG203", "error", message, f"the graph has {_names(graph)}", "sequence_batching.state")
    for name in graph:
        if given and name not in given and name not in states:
            message = f"the graph's output {name!r} is not declared"
            yield Finding("RG204", "warning", message, "declare it to serve it", "output")


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _lines(spec: TensorSpec, max_batch_size: int) -> str:
    """Return a tensor's entry of ``input`` or ``output``."""
    dtype = DTYPES.get(spec.dtype)
    if dtype is None or (max_batch_size > 0 and not spec.shape):
        return ""
    dims, reshape = config_dims(spec.shape, batched=max_batch_size > 0)
    lines = [f'name: "{spec.name}"', f"data_type: TYPE_{dtype.triton}", f"dims: {dims_text(dims)}"]
    return "\n".join(lines if reshape is None else [*lines, "reshape { shape: [ ] }"])


def _servable(what: str, spec: TensorSpec) -> Iterator[Finding]:
    if spec.dtype not in DTYPES:
        message = f"the graph's {what} is {spec.dtype}, which Triton's ONNX Runtime backend does not serve"
        yield Finding("RG209", "error", message, "cast it to float32 or float16 inside the model")


def _declared(
    kind: str, path: str, tensor: TensorView, spec: TensorSpec, max_batch_size: int, *, ragged: bool
) -> Iterator[Finding]:
    what = f"{kind} {spec.name!r}"
    dtype = DTYPES.get(spec.dtype)
    if dtype is not None and tensor.dtype != dtype.triton:
        fix = f"data_type: TYPE_{dtype.triton}"
        message = f"{what} is TYPE_{tensor.dtype} in the config and {spec.dtype} in the graph"
        yield Finding("RG205", "error", message, f"write {fix}", f"{path}.data_type", fix)
    if ragged:
        if spec.shape and not (len(spec.shape) == 1 and isinstance(spec.shape[0], str)):
            message = f"{what} allows ragged batches, whose rows come one behind the other, and the graph has "
            hint = "a ragged input has the shape [ -1 ] in the graph; or drop allow_ragged_batch"
            yield Finding("RG206", "error", message + dims_text(spec.shape), hint, f"{path}.allow_ragged_batch")
        return
    if max_batch_size > 0 and not _batches(spec):
        shape = f"has shape {dims_text(spec.shape)}, so its first dim is no dynamic batch"
        message = f"max_batch_size is {max_batch_size}, but the graph's {what} {shape if spec.shape else 'has no dims'}"
        hint = "make the first dim dynamic when exporting, or set max_batch_size: 0 and give full dims"
        yield Finding("RG208", "error", message, hint, "max_batch_size", "max_batch_size: 0")
        return  # with the batch axis itself wrong, complaints about the other dims would only repeat it
    yield from _shape(kind, path, tensor, spec, batched=max_batch_size > 0)


def _shape(kind: str, path: str, tensor: TensorView, spec: TensorSpec, *, batched: bool) -> Iterator[Finding]:
    what = f"{kind} {spec.name!r}"
    if not spec.shape and tensor.model_dims and set(tensor.model_dims) == {1}:
        return  # a scalar, however many dims of 1 say so
    right, reshape = config_dims(spec.shape, batched=batched)
    graph = right if reshape is None else reshape
    fix = f"dims: {dims_text(right)}" + ("\nreshape { shape: [ ] }" if reshape is not None else "")
    hint = "write " + fix.replace("\n", " and ")
    if len(tensor.model_dims) != len(graph):
        message = f"{what} has {len(tensor.model_dims)} dims {dims_text(tensor.model_dims)} and the graph "
        batch = " (the batch left out)" if batched else ""
        yield Finding("RG206", "error", message + dims_text(graph) + batch, hint, f"{path}.dims", fix)
        return
    for axis, (said, real) in enumerate(zip(tensor.model_dims, graph, strict=True)):
        # Triton lets an input be fixed where the graph is dynamic; an output must match exactly
        if said != real and not (kind == "input" and real == -1):
            message = f"{what} has dim {said} at axis {axis} and the graph {'a dynamic one' if real == -1 else real}"
            yield Finding("RG207", "error", message, hint, f"{path}.dims[{axis}]", fix)
