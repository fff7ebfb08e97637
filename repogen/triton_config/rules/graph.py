"""Rules that compare a config.pbtxt with its ONNX graph."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.targets import BFLOAT16_SINCE, newest_target
from repogen.triton_config.rules.findings import Finding, listed
from repogen.triton_config.rules.identity import is_onnx
from repogen.triton_config.rules.tensors import triton_fed_inputs
from repogen.triton_config.text.dims import config_dims, same_elements
from repogen.triton_config.text.parse import quoted
from repogen.triton_config.text.view import TensorView, dims_text, dtype_name, rank_text, tensor_views

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelSequenceBatching

    from repogen.artifacts.tensors import Signature, TensorSpec
    from repogen.targets import Target

UNDECIDED_DIM = "??"
"""Name of a dim of an output that could not be derived; see ``repogen.onnx_graph.output_shapes``."""
_DEFAULT_MAX_BATCH_SIZE = 4  # Triton's default-max-batch-size
_MAX_COMPARED = 50
"""Names of a graph that a wrong name is compared with."""
_MAX_WORD = 80
"""Characters of a wrong name that are compared: difflib is quadratic."""


def graph_findings(
    config: ModelConfig,
    signature: Signature,
    spare: Sequence[TensorSpec] = (),
    unknown_ranks: Collection[str] = (),
    target: Target | None = None,
) -> list[Finding]:
    """Return the violations of family RG2: where a config does not match its graph.

    Args:
        config: The parsed config.
        signature: Required inputs, and outputs, with full shapes.
        spare: Optional inputs: the initializers that a request can override.
        unknown_ranks: Outputs whose rank could not be derived; their shapes are not compared.
        target: The Triton release that serves the graph; None for the newest, if it is not known.
    """
    serves_bfloat16 = (target or newest_target()).serves_bfloat16
    if not is_onnx(config):
        return []
    findings = [*_input_name_findings(config, signature, spare), *_output_name_findings(config, signature)]
    findings.extend(_auto_batch_findings(config, signature))
    largest = batch_size(config, signature)
    spare_names = {spec.name for spec in spare}
    scattered = _scattered_outputs(config, signature)
    for kind, tensors, specs in (
        ("input", config.input, (*signature.inputs, *spare)),
        ("output", config.output, signature.outputs),
    ):
        declared = {tensor.name: (index, tensor) for index, tensor in enumerate(tensor_views(tensors))}
        for spec in specs:
            if kind == "output" or spec.name not in spare_names:
                findings.extend(_unsupported_dtype_findings(kind, spec, serves_bfloat16=serves_bfloat16))
            if spec.name in declared:
                index, tensor = declared[spec.name]
                ragged = getattr(tensors[index], "allow_ragged_batch", False)
                if kind == "output" and spec.name in scattered:
                    findings.extend(_scatter_findings(f"output[{index}]", tensor, spec, scattered[spec.name]))
                    continue
                if kind == "output" and spec.name in unknown_ranks:
                    findings.extend(_unknown_rank_findings(f"output[{index}]", tensor, spec))
                    continue
                findings.extend(_tensor_findings(f"{kind}[{index}]", tensor, spec, largest, ragged=ragged))
    return [*findings, *_state_findings(config, signature), *_control_findings(config, signature)]


def batch_size(config: ModelConfig, signature: Signature) -> int:
    """Return the max_batch_size that Triton uses; it sets its own default if inputs or outputs are not declared."""
    max_batch_size: int = config.max_batch_size
    if max_batch_size or (config.input and config.output) or _unbatched_tensors(signature):
        return max_batch_size
    return _DEFAULT_MAX_BATCH_SIZE


def _auto_batch_findings(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    unbatched = _unbatched_tensors(signature)
    if config.max_batch_size > 0 and not (config.input and config.output) and unbatched:
        message = f"max_batch_size is {config.max_batch_size}, but undeclared tensors have no dynamic first dim"
        hint = f"{listed(map(repr, unbatched))}: set max_batch_size: 0, and declare inputs and outputs"
        yield Finding("RG208", "error", message, hint, "max_batch_size", "max_batch_size: 0", guess=True)


def _unbatched_tensors(signature: Signature) -> list[str]:
    return [spec.name for spec in (*signature.inputs, *signature.outputs) if not _has_dynamic_first_dim(spec)]


def _has_dynamic_first_dim(spec: TensorSpec) -> bool:
    return bool(spec.shape) and isinstance(spec.shape[0], str)


def _state_findings(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    """Yield states that do not match the graph; Triton passes them to the graph unchanged."""
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    for index, state in enumerate(config.sequence_batching.state):
        path = f"sequence_batching.state[{index}]"
        for kind, name, specs in (("input", state.input_name, inputs), ("output", state.output_name, outputs)):
            if name in specs:
                tensor = TensorView(name, dtype_name(state.data_type), tuple(state.dims))
                # Like an output, a state must have exactly the graph's dims, as an input as well.
                findings = _tensor_findings(path, tensor, specs[name], config.max_batch_size, kind="output")
                for finding in findings:
                    yield replace(finding, message=finding.message.replace("output", f"state {kind}", 1))


def _control_findings(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    specs = {spec.name: spec for spec in signature.inputs}
    for index, tensor in enumerate(config.sequence_batching.control_input):
        if tensor.name not in specs:
            continue
        spec = specs[tensor.name]
        for control in tensor.control:
            declared, dtype = _control_dtype(control), _triton_dtype(spec.dtype)
            if declared and dtype and declared != dtype:
                message = f"control input {spec.name!r} is TYPE_{declared} in the config and {spec.dtype} in the graph"
                path = f"sequence_batching.control_input[{index}]"
                yield Finding("RG205", "error", message, "use the graph's type", path)
        if config.max_batch_size >= 0:  # see RG103
            yield from _control_shape_findings(index, spec, batched=config.max_batch_size > 0)


def _control_shape_findings(index: int, spec: TensorSpec, *, batched: bool) -> Iterator[Finding]:
    """Yield an error if a control does not have one value per row, which the backend requires."""
    row_shape = spec.shape[1:] if batched else spec.shape
    if row_shape != (1,):
        message = f"control input {spec.name!r} has dims {dims_text(spec.shape)} in the graph, but Triton sends "
        message += "one value per row" if batched else "one value"
        hint = f"give it the shape {'[batch, 1]' if batched else '[1]'} in the model"
        yield Finding("RG206", "error", message, hint, f"sequence_batching.control_input[{index}]")


def _control_dtype(control: ModelSequenceBatching.ControlInput.Control) -> str:
    """Return the type of a control's values; empty if not set."""
    pairs = (
        ("INT32", control.int32_false_true), ("FP32", control.fp32_false_true), ("BOOL", control.bool_false_true),
    )  # fmt: skip
    dtype = next((name for name, values in pairs if values), dtype_name(control.data_type))
    return "" if dtype == "INVALID" else dtype


def _input_name_findings(config: ModelConfig, signature: Signature, spare: Sequence[TensorSpec]) -> Iterator[Finding]:
    required = [spec.name for spec in signature.inputs]
    available = {*required, *(spec.name for spec in spare)}
    declared = {tensor.name: index for index, tensor in enumerate(config.input)}
    fed_names = {name for name, _ in triton_fed_inputs(config)}
    unknown = [name for name in declared if name not in available]
    suggestions = {name: _similar(name, required, declared) for name in unknown}
    for index, name in enumerate(tensor.name for tensor in config.input):
        if name not in available:
            message = f"input {name!r} is not in the graph"
            hint = _graph_names(required, suggestions[name])
            yield Finding("RG201", "error", message, hint, f"input[{index}].name")
    suggested = set(suggestions.values())
    verb = "is" if len(unknown) == 1 else "are"
    hint = (
        f"declare it, or rename {listed(map(repr, unknown))}, which {verb} not in the graph"
        if unknown
        else "declare it"
    )
    for spec in signature.inputs:
        # Triton completes a config without any input, which RG113 reports.
        # A misspelled name is one problem, which RG201 reports.
        if declared and spec.name not in suggested and spec.name not in declared and spec.name not in fed_names:
            message = f"the graph's input {spec.name!r} is not declared"
            # an input with the wrong name may be meant, and a further one would not make the model load
            fix = "" if unknown else _entry(spec, config.max_batch_size)
            yield Finding("RG202", "error", message, hint, "input", fix)
    yield from _optional_findings(config, set(required), {spec.name for spec in spare})
    yield from _fed_input_findings(config, declared, available)


def _fed_input_findings(config: ModelConfig, declared: Mapping[str, int], available: set[str]) -> Iterator[Finding]:
    """Yield the violations in inputs that Triton fills."""
    hint = _graph_names(sorted(available))
    for name, field in dict(reversed(triton_fed_inputs(config))).items():
        if name in declared:
            message = f"input {name!r} is declared, but Triton fills it"
            yield Finding("RG201", "error", message, "remove it from input", f"input[{declared[name]}]")
        if name not in available:
            message = f"Triton fills input {name!r}, which is not in the graph"
            yield Finding("RG201", "error", message, hint, field)


def _optional_findings(config: ModelConfig, required: set[str], spare: set[str]) -> Iterator[Finding]:
    """Yield inputs that are optional in only one of config and graph; the backend compares the number of each."""
    for index, tensor in enumerate(config.input):
        if tensor.optional and tensor.name in required:
            message = f"input {tensor.name!r} is optional in the config, but the graph requires it"
            yield Finding("RG202", "error", message, "remove optional", f"input[{index}].optional")
        elif tensor.name in spare and not tensor.optional:
            message = f"input {tensor.name!r} has a default value in the graph, but is not optional in the config"
            hint = "write optional: true, or remove the input" if config.max_batch_size == 0 else "remove the input"
            yield Finding("RG202", "error", message, hint, f"input[{index}]")


def _output_name_findings(config: ModelConfig, signature: Signature) -> Iterator[Finding]:
    available = {spec.name: None for spec in signature.outputs}
    declared = {tensor.name for tensor in config.output}
    used = declared | {state.output_name for state in config.sequence_batching.state}
    suggestions = {name: _similar(name, available, used) for name in used if name not in available}
    for index, name in enumerate(tensor.name for tensor in config.output):
        if name not in available:
            message = f"output {name!r} is not in the graph"
            hint = _graph_names(available, suggestions[name])
            yield Finding("RG203", "error", message, hint, f"output[{index}].name")
    for index, state in enumerate(config.sequence_batching.state):
        if state.output_name not in available:
            message = f"state output {state.output_name!r} is not in the graph"
            field = f"sequence_batching.state[{index}].output_name"
            hint = _graph_names(available, suggestions[state.output_name])
            yield Finding("RG203", "error", message, hint, field)
    suggested = set(suggestions.values())
    for name in available:
        # A misspelled name is one problem, which RG203 reports.
        if declared and name not in used and name not in suggested:
            message = f"the graph's output {name!r} is not declared"
            yield Finding("RG204", "warning", message, "declare it to serve it", "output")


def _similar(unknown: str, names: Collection[str], used: Container[str]) -> str:
    """Return the graph's name that is similar to one that is not in the graph, and is not used; empty if none is."""
    unused = [name for name in islice(names, _MAX_COMPARED) if name not in used]
    same = (name for name in unused if name.lower() == unknown.lower())
    return next(same, "") or next(iter(get_close_matches(unknown[:_MAX_WORD], unused, n=1)), "")


def _graph_names(names: Collection[str], suggestion: str = "") -> str:
    """Return the hint for a name that is not in the graph: the graph's names, and which of them may be meant."""
    if suggestion and len(names) == 1:
        return f"did you mean {suggestion!r}?"
    question = f"; did you mean {suggestion!r}?" if suggestion else ""
    return f"the graph has {listed(map(repr, names)) or 'none'}{question}"


def _entry(spec: TensorSpec, max_batch_size: int) -> str:
    """Return the lines that declare a tensor; empty if the tensor cannot be declared."""
    dtype = _triton_dtype(spec.dtype)
    if not dtype or max_batch_size < 0 or (max_batch_size > 0 and not spec.shape):
        return ""
    dims, reshape = config_dims(spec.shape, batched=max_batch_size > 0)
    lines = [f"name: {quoted(spec.name)}", f"data_type: TYPE_{dtype}", f"dims: {dims_text(dims)}"]
    return "\n".join(lines if reshape is None else [*lines, "reshape { shape: [ ] }"])


def _unsupported_dtype_findings(kind: str, spec: TensorSpec, *, serves_bfloat16: bool) -> Iterator[Finding]:
    if not _triton_dtype(spec.dtype) or (spec.dtype == "bfloat16" and not serves_bfloat16):
        message = f"the graph's {kind} {spec.name!r} is {spec.dtype}, unsupported by Triton's ONNX Runtime backend"
        hint = "cast it to float32 or float16 inside the model"
        hint += f", or target {BFLOAT16_SINCE} or newer" if spec.dtype == "bfloat16" else ""
        yield Finding("RG209", "error", message, hint)


def _triton_dtype(dtype: str) -> str:
    """Return Triton's name of a graph's data type without ``TYPE_``; empty if no release serves it."""
    return DTYPES[dtype].triton if dtype in DTYPES else ""


def _scattered_outputs(config: ModelConfig, signature: Signature) -> dict[str, TensorSpec | None]:
    """Return the ragged source of each output that Triton splits by the shapes of an input; None if it is not ragged.

    Triton's backend does not compare the dims of these outputs with the graph.
    """
    ragged = {tensor.name for tensor in config.input if tensor.allow_ragged_batch}
    sources = {spec.name: spec for spec in signature.inputs if spec.name in ragged}
    entries = [(entry, source) for entry in config.batch_output for source in entry.source_input[:1]]
    return {name: sources.get(source) for entry, source in entries for name in entry.target_name}


def _scatter_findings(path: str, tensor: TensorView, spec: TensorSpec, source: TensorSpec | None) -> Iterator[Finding]:
    """Yield dims with which a response contains elements of other requests, which the server does not report."""
    subject = f"output {spec.name!r}"
    yield from _dtype_findings(subject, path, tensor, spec)
    if source is None or not _has_dynamic_first_dim(spec):
        return
    elements, _ = config_dims(spec.shape, batched=False)
    is_row = spec.shape[:1] != source.shape[:1] and same_elements(tensor.model_dims, elements[1:])
    if is_row or (tensor.model_dims[:1] == (-1,) and same_elements(tensor.model_dims, elements)):
        return
    fix = f"dims: {dims_text(elements)}"
    message = f"{subject} is scattered by the shapes of a ragged input and has dims {dims_text(tensor.model_dims)}, so "
    message += "responses contain other rows' values"
    yield Finding("RG207", "error", message, f"write {fix}", f"{path}.dims", fix)


def _unknown_rank_findings(path: str, tensor: TensorView, spec: TensorSpec) -> Iterator[Finding]:
    subject = f"output {spec.name!r}"
    yield from _dtype_findings(subject, path, tensor, spec)
    message = f"{subject} has no shape in the file, and none could be derived: its dims were not compared"
    hint = "load the model in Triton to see the shape that ONNX Runtime derives"
    yield Finding("RG206", "warning", message, hint, f"{path}.dims")


def _dtype_findings(subject: str, path: str, tensor: TensorView, spec: TensorSpec) -> Iterator[Finding]:
    dtype = _triton_dtype(spec.dtype)
    if dtype and tensor.dtype != dtype:
        fix = f"data_type: TYPE_{dtype}"
        message = f"{subject} is TYPE_{tensor.dtype} in the config and {spec.dtype} in the graph"
        yield Finding("RG205", "error", message, f"write {fix}", f"{path}.data_type", fix)


def _tensor_findings(
    path: str, tensor: TensorView, spec: TensorSpec, max_batch_size: int, *, kind: str = "", ragged: bool = False
) -> Iterator[Finding]:
    kind = kind or path.partition("[")[0]
    subject = f"{kind} {spec.name!r}"
    yield from _dtype_findings(subject, path, tensor, spec)
    if ragged:
        if spec.shape and not (len(spec.shape) == 1 and isinstance(spec.shape[0], str)):
            message = f"{subject} has allow_ragged_batch, which concatenates rows, but the graph's shape is "
            hint = "give the input the shape [ -1 ] in the graph, or remove allow_ragged_batch"
            yield Finding("RG206", "error", message + dims_text(spec.shape), hint, f"{path}.allow_ragged_batch")
        return
    if max_batch_size < 0:
        return  # RG103: whether dims contain the batch is unknown
    if max_batch_size > 0 and not _has_dynamic_first_dim(spec):
        shape = f"has shape {dims_text(spec.shape)} without a dynamic first dim" if spec.shape else "has no dims"
        message = f"max_batch_size is {max_batch_size}, but the graph's {subject} {shape}"
        hint = "make the first dim dynamic when exporting, or set max_batch_size: 0 and declare full dims"
        yield Finding("RG208", "error", message, hint, "max_batch_size", "max_batch_size: 0", guess=True)
        return  # the other dims would only repeat the same error
    yield from _shape_findings(subject, path, tensor, spec, batched=max_batch_size > 0)


def _shape_findings(
    subject: str, path: str, tensor: TensorView, spec: TensorSpec, *, batched: bool
) -> Iterator[Finding]:
    if not spec.shape and tensor.model_dims and set(tensor.model_dims) == {1}:
        return  # a scalar can be declared with any number of dims of 1
    dims, reshape = config_dims(spec.shape, batched=batched)
    graph_dims = dims if reshape is None else reshape
    fix = f"dims: {dims_text(dims)}" + ("\nreshape { shape: [ ] }" if reshape is not None else "")
    hint = "write " + fix.replace("\n", " and ")
    if tensor.reshape is not None:  # dims and reshape have as many elements, so several corrections are possible
        fix, hint = "", f"make reshape {{ shape: {dims_text(graph_dims)} }}"
    if len(tensor.model_dims) != len(graph_dims):
        message = f"{subject} has {rank_text(tensor.model_dims)} {dims_text(tensor.model_dims)}, but the graph has "
        batch = " (without the batch)" if batched else ""
        yield Finding("RG206", "error", message + dims_text(graph_dims) + batch, hint, f"{path}.dims", fix)
        return
    undecided = _undecided_axes(spec, batched=batched)
    for axis, (declared, actual) in enumerate(zip(tensor.model_dims, graph_dims, strict=True)):
        if declared != actual and axis in undecided:
            message = f"{subject} has dim {declared} at axis {axis}, which could not be derived from the graph"
            hint = (
                "load the model in Triton: it requires the number that ONNX Runtime derives, or -1 if it derives none"
            )
            yield Finding("RG207", "warning", message, hint, f"{path}.dims[{axis}]")
        # An input may be fixed where the graph is dynamic; an output must match exactly.
        elif declared != actual and not (subject.startswith("input") and actual == -1):
            actual_text = "a dynamic dim" if actual == -1 else str(actual)
            message = f"{subject} has dim {declared} at axis {axis}, but the graph has {actual_text}"
            yield Finding("RG207", "error", message, hint, f"{path}.dims[{axis}]", fix)


def _undecided_axes(spec: TensorSpec, *, batched: bool) -> set[int]:
    """Return the axes of ``dims`` that ONNX Runtime may know and the inference of onnx does not."""
    shape = spec.shape[1:] if batched else spec.shape
    return {axis for axis, dim in enumerate(shape) if dim == UNDECIDED_DIM}
