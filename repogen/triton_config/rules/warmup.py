"""Rules for model_warmup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding, listed
from repogen.triton_config.text.source_map import entry_path
from repogen.triton_config.text.view import dims_text, dtype_name, fits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelWarmup

    from repogen.triton_config.rules.findings import Severity


def warmup_findings(config: ModelConfig) -> Iterator[Finding]:
    """Yield the violations in model_warmup."""
    if config.model_warmup and config.sequence_batching.state:
        message = "a warmup request cannot provide the states of a sequence model, and Triton rejects the model"
        yield Finding("RG116", "error", message, "remove model_warmup", "model_warmup")
    controls = {tensor.name: None for tensor in config.sequence_batching.control_input}
    declared = {tensor.name: tensor for tensor in config.input}
    for index, warmup in enumerate(config.model_warmup):
        path = f"model_warmup[{index}]"
        if missing_controls := listed(name for name in controls if name not in warmup.inputs):
            message = f"warmup {warmup.name!r} of a sequence model has no value for its control {missing_controls}"
            hint = "add it, or remove the warmup: tritonserver 2.51 crashes"
            yield Finding("RG116", "error", message, hint, path)
        yield from _batch_findings(config, path, warmup)
        yield from _input_findings(declared, controls, path, warmup)


def _batch_findings(config: ModelConfig, path: str, warmup: ModelWarmup) -> Iterator[Finding]:
    largest = max(config.max_batch_size, 1)
    if config.max_batch_size >= 0 and warmup.batch_size > largest:
        message = f"warmup {warmup.name!r} has batch_size {warmup.batch_size}, but the largest batch is {largest}"
        hint = "lower it: Triton can crash"
        yield Finding("RG116", "error", message, hint, f"{path}.batch_size")
    if not warmup.batch_size:
        message = f"warmup {warmup.name!r} has no batch_size, so Triton does not run it"
        yield Finding("RG116", "warning", message, "write batch_size: 1", path)


def _input_findings(
    declared: Mapping[str, ModelInput], controls: Collection[str], path: str, warmup: ModelWarmup
) -> Iterator[Finding]:
    subject = f"warmup {warmup.name!r}"
    if not warmup.inputs:
        severity: Severity = "error" if warmup.batch_size else "warning"  # Triton runs it only with a batch size
        yield Finding("RG116", severity, f"{subject} has no inputs", "add each input of the model", path)
    for name in sorted(warmup.inputs):
        field = entry_path(f"{path}.inputs", name)
        if name in controls:
            continue
        if name not in declared:
            message = f"{subject} has input {name!r}, which the model does not have; Triton can crash"
            yield Finding("RG116", "error", message, "use the input names of the config", field)
            continue
        value_subject = f"{subject}, input {name!r},"
        yield from _value_findings(field, value_subject, declared[name], warmup.inputs[name])
    if not warmup.inputs or not all(name in declared or name in controls for name in warmup.inputs):
        return
    required = (name for name, tensor in declared.items() if not tensor.optional)
    if missing_inputs := listed(repr(name) for name in required if name not in warmup.inputs):
        message = f"{subject} has no value for {missing_inputs}"
        yield Finding("RG116", "error", message, "add each input of the model", path)


def _value_findings(field: str, subject: str, tensor: ModelInput, value: ModelWarmup.Input) -> Iterator[Finding]:
    if value.data_type != tensor.data_type:
        message = f"{subject} is TYPE_{dtype_name(value.data_type)}, but the model's input is "
        message += f"TYPE_{dtype_name(tensor.data_type)}"
        yield Finding("RG116", "error", message, "use the model's data_type", field)
    if any(dim < 1 for dim in value.dims):
        message = f"{subject} has dims {dims_text(value.dims)}, but a request needs a size for each dim"
        yield Finding("RG116", "error", message, "write a size for each dim, without the batch", field)
    elif not fits(tuple(value.dims), tuple(tensor.dims)):
        message = f"{subject} has dims {dims_text(value.dims)}, but the model's are {dims_text(tensor.dims)}"
        yield Finding("RG116", "error", message, "write matching dims, without the batch", field)
    if value.WhichOneof("input_data_type") is None:
        message = f"{subject} has no data"
        yield Finding("RG116", "error", message, "write zero_data: true, random_data: true or input_data_file", field)
