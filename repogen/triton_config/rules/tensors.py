"""Inputs, outputs, and what Triton makes of them for a batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import DTYPES
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_ensemble, is_onnx, is_tensorrt
from repogen.triton_config.text.dims import same_elements
from repogen.triton_config.text.view import dims_text, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import BatchInput, BatchOutput, ModelConfig, ModelInput, ModelOutput

    from repogen.triton_config.rules.findings import Severity

_SERVED = frozenset(dtype.triton for dtype in DTYPES.values())
_IMAGE_DIMS = 3
_COUNTS = frozenset({"INT32", "FP32"})


def tensor_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with inputs, outputs, batch_input and batch_output."""
    for kind, tensors in (("input", config.input), ("output", config.output)):
        if not tensors:
            yield from _undeclared(config, kind)
        for name, times in Counter(tensor.name for tensor in tensors).items():
            if times > 1:
                last = max(index for index, tensor in enumerate(tensors) if tensor.name == name)
                message = f"{kind} {name!r} stands {times} times"
                severity: Severity = "error" if kind == "input" and not is_ensemble(config) else "warning"
                yield Finding("RG104", severity, message, "keep one of them", f"{kind}[{last}]")
        for index, tensor in enumerate(tensors):
            yield from _tensor(config, kind, f"{kind}[{index}]", tensor)
            yield from _of_tensorrt(config, f"{kind}[{index}]", f"{kind} {tensor.name!r}", tensor)
    yield from _image_formats(config)
    yield from _ragged(config)
    yield from _made_of_batches(config)


def _undeclared(config: ModelConfig, kind: str) -> Iterator[Finding]:
    if is_ensemble(config):
        yield Finding("RG113", "error", f"the ensemble declares no {kind}", f"declare each {kind}")
    elif is_onnx(config):
        message = f"no {kind} is declared, so Triton guesses, and takes any dynamic first axis for a batch"
        yield Finding("RG113", "warning", message, f"declare each {kind}")


def _tensor(config: ModelConfig, kind: str, path: str, tensor: ModelInput | ModelOutput) -> Iterator[Finding]:
    what = f"{kind} {tensor.name!r}"
    dtype = dtype_name(tensor.data_type)
    if not tensor.name:
        yield Finding("RG104", "error", f"an {kind} has no name", "write the graph's name of it", path)
    if dtype == "INVALID":
        yield Finding("RG107", "error", f"{what} has no data_type", "write the graph's", f"{path}.data_type")
    elif is_onnx(config) and dtype not in _SERVED:
        message = f"{what} has data_type TYPE_{dtype}, which the ONNX Runtime backend does not serve"
        hint = "cast to FP32 or FP16 inside the model"
        yield Finding("RG107", "error", message, hint, f"{path}.data_type")
    if not tensor.dims:
        hint = "use dims: [ 1 ], with reshape { shape: [ ] } where the graph's shape is [batch]"
        yield Finding("RG105", "error", f"{what} has empty dims", hint, path)
    for name, dims in (("dims", tensor.dims), ("reshape.shape", tensor.reshape.shape)):
        for axis in (axis for axis, dim in enumerate(dims) if dim == 0 or dim < -1):
            message = f"{what} has a dim of {dims[axis]}"
            hint = "use -1 for a dynamic dim, else its size"
            yield Finding("RG106", "error", message, hint, f"{path}.{name}[{axis}]")
    if tensor.HasField("reshape"):
        yield from _reshape(config, path, what, tensor)


def _of_tensorrt(config: ModelConfig, path: str, what: str, tensor: ModelInput | ModelOutput) -> Iterator[Finding]:
    for key in ("is_shape_tensor", "is_non_linear_format_io"):
        if getattr(tensor, key) and not is_tensorrt(config):
            yield Finding("RG124", "error", f"{what} has {key}, which TensorRT alone takes", "drop it", f"{path}.{key}")


def _reshape(config: ModelConfig, path: str, what: str, tensor: ModelInput | ModelOutput) -> Iterator[Finding]:
    dims, shape = tuple(tensor.dims), tuple(tensor.reshape.shape)
    if not shape and config.max_batch_size == 0:
        message = f"{what} is reshaped to nothing, and without a batch nothing would be left"
        yield Finding("RG114", "error", message, "drop reshape: a scalar has dims: [ 1 ]", f"{path}.reshape")
    elif dims and not same_elements(dims, shape):
        message = f"{what} reshapes {dims_text(dims)} to {dims_text(shape)}, which holds another number"
        yield Finding("RG114", "error", message, "give both the same number of elements", f"{path}.reshape")


def _image_formats(config: ModelConfig) -> Iterator[Finding]:
    for index, tensor in enumerate(config.input):
        if tensor.format and len(tensor.dims) != _IMAGE_DIMS:
            name = type(tensor).Format.Name(tensor.format)
            message = f"input {tensor.name!r} has {name} and {len(tensor.dims)} dims; an image has 3, without the batch"
            yield Finding("RG124", "error", message, "drop format, or give three dims", f"input[{index}].format")


def _ragged(config: ModelConfig) -> Iterator[Finding]:
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch and config.max_batch_size == 0:
            message = f"input {tensor.name!r} allows ragged batches, and max_batch_size is 0"
            hint = "drop allow_ragged_batch, or give a max_batch_size"
            yield Finding("RG124", "error", message, hint, f"input[{index}].allow_ragged_batch")
        if tensor.optional and config.max_batch_size > 0 and is_onnx(config):
            message = f"input {tensor.name!r} is optional, which the ONNX Runtime backend does not take in a batch"
            hint = "drop optional, or set max_batch_size: 0"
            yield Finding("RG124", "error", message, hint, f"input[{index}].optional")


def _made_of_batches(config: ModelConfig) -> Iterator[Finding]:
    for kind, entries in (("batch_input", config.batch_input), ("batch_output", config.batch_output)):
        for index, entry in enumerate(entries):
            yield from _made(config, kind, f"{kind}[{index}]", entry)


def _made(config: ModelConfig, kind: str, path: str, entry: BatchInput | BatchOutput) -> Iterator[Finding]:
    for key in ("target_name", "source_input"):
        if (times := len(getattr(entry, key))) != 1:
            message = f"a {kind} has {times} {key}, and Triton takes one"
            yield Finding("RG125", "error", message, "write one", path)
    for source in sorted(set(entry.source_input) - {tensor.name for tensor in config.input}):
        message = f"a {kind} is made from {source!r}, which is no input"
        yield Finding("RG125", "error", message, "name an input", f"{path}.source_input[0]")
    if kind == "batch_input":
        if (dtype := dtype_name(entry.data_type)) not in _COUNTS:
            message = f"a batch_input is TYPE_{dtype}, and Triton makes INT32 or FP32"
            yield Finding("RG125", "error", message, "write one of these", f"{path}.data_type")
        return
    for target in sorted(set(entry.target_name) - {tensor.name for tensor in config.output}):
        message = f"a batch_output is {target!r}, which is no output"
        yield Finding("RG125", "error", message, "name an output", f"{path}.target_name[0]")
