"""model_warmup: requests that Triton makes before the model is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.view import dims_text, dtype_name, fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelWarmup

    from repogen.triton_config.rules.findings import Severity


def warmup_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with warmups."""
    if config.model_warmup and config.sequence_batching.state:
        message = "a warmup cannot feed the states of a sequence, and without them the model does not run"
        yield Finding("RG116", "error", message, "drop model_warmup", "model_warmup[0]")
    for index, warmup in enumerate(config.model_warmup):
        path = f"model_warmup[{index}]"
        if missing := sorted(_controls(config) - set(warmup.inputs)):
            message = f"warmup {warmup.name!r} of a sequence model leaves out its control {', '.join(missing)}"
            hint = "feed it, or drop the warmup: this brings tritonserver 2.51 down"
            yield Finding("RG116", "error", message, hint, path)
        yield from _batch(config, path, warmup)
        yield from _inputs(config, path, warmup)


def _controls(config: ModelConfig) -> set[str]:
    return {tensor.name for tensor in config.sequence_batching.control_input}


def _batch(config: ModelConfig, path: str, warmup: ModelWarmup) -> Iterator[Finding]:
    largest = max(config.max_batch_size, 1)
    if warmup.batch_size > largest:
        message = f"warmup {warmup.name!r} has batch_size {warmup.batch_size}, more than {largest}"
        hint = "lower it: this can bring Triton down"
        yield Finding("RG116", "error", message, hint, f"{path}.batch_size")
    if not warmup.batch_size:
        message = f"warmup {warmup.name!r} has no batch_size, so nothing is run"
        yield Finding("RG116", "warning", message, "write batch_size: 1", path)


def _inputs(config: ModelConfig, path: str, warmup: ModelWarmup) -> Iterator[Finding]:
    declared = {tensor.name: tensor for tensor in config.input}
    what = f"warmup {warmup.name!r}"
    if not warmup.inputs:
        severity: Severity = "error" if warmup.batch_size else "warning"  # without a batch nothing is run
        yield Finding("RG116", severity, f"{what} feeds no input", "give each input of the model", path)
    controls = _controls(config)
    for number, (name, fed) in enumerate(warmup.inputs.items()):
        where = f"{path}.inputs[{number}]"
        if name in controls:
            continue
        if name not in declared:
            message = f"{what} feeds {name!r}, unknown to the model; this can bring Triton down"
            yield Finding("RG116", "error", message, "use the config's input names", where)
            continue
        yield from _fed(where, f"{what}, input {name!r},", declared[name], fed)
    missing = [name for name, tensor in declared.items() if name not in warmup.inputs and not tensor.optional]
    if missing and warmup.inputs and declared.keys() | controls >= set(warmup.inputs):
        message = f"{what} leaves out {', '.join(map(repr, missing))}"
        yield Finding("RG116", "error", message, "give each input of the model", path)


def _fed(where: str, what: str, tensor: ModelInput, fed: ModelWarmup.Input) -> Iterator[Finding]:
    if fed.data_type != tensor.data_type:
        message = f"{what} is TYPE_{dtype_name(fed.data_type)} and the model's TYPE_{dtype_name(tensor.data_type)}"
        yield Finding("RG116", "error", message, "write the model's data_type", where)
    if any(dim < 1 for dim in fed.dims):
        message = f"{what} has dims {dims_text(fed.dims)}, and a request has sizes"
        yield Finding("RG116", "error", message, "write a size for each dim, without the batch", where)
    elif not fits(tuple(fed.dims), tuple(tensor.dims)):
        message = f"{what} has dims {dims_text(fed.dims)} and the model's are {dims_text(tensor.dims)}"
        yield Finding("RG116", "error", message, "write dims that fit, without the batch", where)
    if fed.WhichOneof("input_data_type") is None:
        message = f"{what} has no data"
        yield Finding("RG116", "error", message, "write zero_data: true, random_data: true or input_data_file", where)
