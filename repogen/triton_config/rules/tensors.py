"""Rules for inputs, outputs, batch_input and batch_output."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.targets import BFLOAT16_SINCE
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_ensemble, is_onnx, is_tensorrt
from repogen.triton_config.text.dims import same_elements
from repogen.triton_config.text.view import dims_text, dtype_name, rank_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import BatchInput, BatchOutput, ModelConfig, ModelInput, ModelOutput

    from repogen.targets import Target
    from repogen.triton_config.rules.findings import Severity

_SERVED_DTYPES = frozenset(dtype.triton for dtype in DTYPES.values())
_IMAGE_DIMS = 3
_BATCH_INPUT_DTYPES = frozenset({"INT32", "FP32"})


def tensor_findings(config: ModelConfig, target: Target) -> Iterator[Finding]:
    """Yield the violations in input, output, batch_input and batch_output."""
    for kind, tensors in (("input", config.input), ("output", config.output)):
        if not tensors:
            yield from _undeclared_findings(config, kind)
        yield from _duplicate_findings(config, kind, [tensor.name for tensor in tensors])
        for index, tensor in enumerate(tensors):
            yield from _tensor_findings(config, kind, f"{kind}[{index}]", tensor)
            yield from _dtype_findings(config, f"{kind}[{index}]", f"{kind} {tensor.name!r}", tensor, target)
            yield from _tensorrt_findings(config, f"{kind}[{index}]", f"{kind} {tensor.name!r}", tensor)
    yield from _empty_reshape_findings(config)
    yield from _image_findings(config)
    yield from _ragged_findings(config)
    yield from _batch_tensor_findings(config)
    names: set[str] = set()
    for name, field in triton_fed_inputs(config):
        if name in names:
            yield Finding("RG201", "error", f"Triton fills input {name!r} twice", "keep one", field)
        names.add(name)


def triton_fed_inputs(config: ModelConfig) -> list[tuple[str, str]]:
    """Return the inputs that Triton fills: controls and states of a sequence, and the targets of batch_input.

    Returns:
        Name of each input, and the path of the field that names it.
    """
    inputs: list[tuple[str, str]] = []
    for index, tensor in enumerate(config.sequence_batching.control_input):
        inputs.append((tensor.name, f"sequence_batching.control_input[{index}].name"))
    for index, state in enumerate(config.sequence_batching.state):
        inputs.append((state.input_name, f"sequence_batching.state[{index}].input_name"))
    for index, entry in enumerate(config.batch_input):
        for number, name in enumerate(entry.target_name):
            inputs.append((name, f"batch_input[{index}].target_name[{number}]"))
    return inputs


def _duplicate_findings(config: ModelConfig, kind: str, names: list[str]) -> Iterator[Finding]:
    last_index = {name: index for index, name in enumerate(names)}
    for name, times in Counter(names).items():
        if times > 1:
            message = f"{kind} {name!r} is declared {times} times"
            severity: Severity = "error" if kind == "input" and not is_ensemble(config) else "warning"
            yield Finding("RG104", severity, message, "keep one", f"{kind}[{last_index[name]}]")


def _undeclared_findings(config: ModelConfig, kind: str) -> Iterator[Finding]:
    if is_ensemble(config):
        yield Finding("RG113", "error", f"the ensemble declares no {kind}s", f"declare each {kind}")
    elif is_onnx(config):
        message = f"no {kind}s are declared, so Triton assumes that any dynamic first axis is a batch"
        yield Finding("RG113", "warning", message, f"declare each {kind}")


def _tensor_findings(config: ModelConfig, kind: str, path: str, tensor: ModelInput | ModelOutput) -> Iterator[Finding]:
    subject = f"{kind} {tensor.name!r}"
    if not tensor.name:
        yield Finding("RG104", "error", f"an {kind} has no name", "write its name in the graph", path)
    if not tensor.dims:
        hint = "use dims: [ 1 ], with reshape { shape: [ ] } if the graph's shape is [batch]"
        yield Finding("RG105", "error", f"{subject} has empty dims", hint, path)
    for name, dims in (("dims", tensor.dims), ("reshape.shape", tensor.reshape.shape)):
        for axis in (axis for axis, dim in enumerate(dims) if dim == 0 or dim < -1):
            message = f"{subject} has a dim of {dims[axis]}"
            hint = "use -1 for a dynamic dim, or its size"
            yield Finding("RG106", "error", message, hint, f"{path}.{name}[{axis}]")
    if tensor.HasField("reshape"):
        yield from _reshape_findings(config, path, subject, tensor)


def _dtype_findings(
    config: ModelConfig, path: str, subject: str, tensor: ModelInput | ModelOutput, target: Target
) -> Iterator[Finding]:
    dtype = dtype_name(tensor.data_type)
    if dtype == "INVALID":
        yield Finding(
            "RG107", "error", f"{subject} has no data_type", "declare the graph's data type", f"{path}.data_type"
        )
    elif is_onnx(config) and dtype not in _SERVED_DTYPES:
        message = f"{subject} has data_type TYPE_{dtype}, which the ONNX Runtime backend does not support"
        hint = "cast to FP32 or FP16 inside the model"
        yield Finding("RG107", "error", message, hint, f"{path}.data_type")
    elif is_onnx(config) and dtype == "BF16" and not target.serves_bfloat16:
        message = f"{subject} has data_type TYPE_BF16, which the backend supports only in {BFLOAT16_SINCE} or newer"
        hint = f"cast to FP32 or FP16 inside the model, or target {BFLOAT16_SINCE} or newer"
        yield Finding("RG107", "error", message, hint, f"{path}.data_type")


def _tensorrt_findings(
    config: ModelConfig, path: str, subject: str, tensor: ModelInput | ModelOutput
) -> Iterator[Finding]:
    for key in ("is_shape_tensor", "is_non_linear_format_io"):
        if getattr(tensor, key) and not is_tensorrt(config):
            message = f"{subject} has {key}, which only TensorRT supports"
            yield Finding("RG124", "error", message, "remove it", f"{path}.{key}")


def _reshape_findings(
    config: ModelConfig, path: str, subject: str, tensor: ModelInput | ModelOutput
) -> Iterator[Finding]:
    dims, shape = tuple(tensor.dims), tuple(tensor.reshape.shape)
    if not shape and config.max_batch_size == 0:
        message = f"{subject} is reshaped to an empty shape, which requires max_batch_size above 0"
        yield Finding("RG114", "error", message, "remove reshape: a scalar has dims: [ 1 ]", f"{path}.reshape")
    elif dims and not same_elements(dims, shape):
        message = (
            f"{subject} reshapes {dims_text(dims)} to {dims_text(shape)}, which has a different number of elements"
        )
        yield Finding("RG114", "error", message, "make the number of elements equal", f"{path}.reshape")


def _empty_reshape_findings(config: ModelConfig) -> Iterator[Finding]:
    if config.max_batch_size <= 0 or not config.HasField("dynamic_batching") or not is_onnx(config):
        return
    for index, tensor in enumerate(config.input):
        if tensor.HasField("reshape") and not tensor.reshape.shape:
            message = f"a request with no rows for input {tensor.name!r}, which has an empty reshape, "
            message += "crashes tritonserver 2.51"
            hint = "give the input a second axis in the model, or reject such requests before they reach Triton"
            yield Finding("RG134", "warning", message, hint, f"input[{index}].reshape")


def _image_findings(config: ModelConfig) -> Iterator[Finding]:
    for index, tensor in enumerate(config.input):
        if tensor.format and len(tensor.dims) != _IMAGE_DIMS:
            name = type(tensor).Format.Name(tensor.format)
            message = f"input {tensor.name!r} has {name} and {rank_text(tensor.dims)}, but needs 3 without the batch"
            yield Finding("RG124", "error", message, "remove format, or declare three dims", f"input[{index}].format")


def _ragged_findings(config: ModelConfig) -> Iterator[Finding]:
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch and config.max_batch_size == 0:
            message = f"input {tensor.name!r} has allow_ragged_batch, but max_batch_size is 0, so no rows are combined"
            hint = "remove allow_ragged_batch, or raise max_batch_size"
            yield Finding("RG124", "warning", message, hint, f"input[{index}].allow_ragged_batch")
        if tensor.optional and config.max_batch_size > 0 and is_onnx(config):
            message = f"input {tensor.name!r} is optional, which the ONNX Runtime backend does not support in a batch"
            hint = "remove optional, or set max_batch_size: 0"
            yield Finding("RG124", "error", message, hint, f"input[{index}].optional")


def _batch_tensor_findings(config: ModelConfig) -> Iterator[Finding]:
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for index, batch_input in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        yield from _source_findings(inputs, "batch_input", path, batch_input)
        if (dtype := dtype_name(batch_input.data_type)) not in _BATCH_INPUT_DTYPES:
            message = f"a batch_input has data_type TYPE_{dtype}, but Triton supports INT32 and FP32"
            yield Finding("RG125", "error", message, "use one of these", f"{path}.data_type")
    for index, batch_output in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        yield from _source_findings(inputs, "batch_output", path, batch_output)
        for target in sorted(set(batch_output.target_name) - outputs):
            message = f"a batch_output has the target {target!r}, which is not an output"
            yield Finding("RG125", "error", message, "name an output", f"{path}.target_name[0]")


def _source_findings(inputs: set[str], kind: str, path: str, entry: BatchInput | BatchOutput) -> Iterator[Finding]:
    for key in ("target_name", "source_input"):
        if (count := len(getattr(entry, key))) != 1:
            message = f"a {kind} has {count} entries in {key}, but Triton requires exactly one"
            yield Finding("RG125", "error", message, "write one", path)
    for source in sorted(set(entry.source_input) - inputs):
        message = f"a {kind} has the source {source!r}, which is not an input"
        yield Finding("RG125", "error", message, "name an input", f"{path}.source_input[0]")
