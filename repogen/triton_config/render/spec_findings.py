"""Checks a ``triton:`` section with the rules for config.pbtxt before the model's graph exists."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from google.protobuf import json_format

from repogen.errors import ConfigError
from repogen.targets import newest_target
from repogen.triton_config.render.config_sections import excessive_warmups, merge_extra, section_config
from repogen.triton_config.rules.accelerators import TENSORRT, accelerator_findings
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.sections.base import INT32_MAX
from repogen.triton_config.sections.model import (
    NOT_FOR_ENSEMBLES,
    AcceleratorSpec,
    AcceleratorsSpec,
    InstanceGroupSpec,
    OptimizationSpec,
    TritonSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.message import Message as AnyMessage
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message
    from tritonclient.grpc.model_config_pb2 import ModelSequenceBatching

    from repogen.triton_config.sections.base import KeyPath

_UNKNOWN_BATCH = INT32_MAX - 1
"""max_batch_size in place of ``auto``: large enough for any batch size that the section mentions."""

# Warnings of `repogen check` that are mistakes in a spec: Triton ignores what the user requests.
_REJECTED_WARNINGS = frozenset({"RG109", "RG112", "RG120", "RG135"})
_PATH_PART = re.compile(r"""\.?(?P<name>[A-Za-z_]\w*)|\[(?P<index>\d+)\]|\[(?P<key>"(?:\\.|[^"\\])*")\]""")


def section_findings(triton: TritonSpec, kind: str) -> Iterator[tuple[KeyPath, Finding]]:
    """Yield the rules that a section violates whatever the graph is, with the key path below ``triton``.

    The message gets a valid placeholder for everything that the graph determines: types, dims, inputs of warmups.

    Args:
        triton: A section without mutually exclusive keys.
        kind: The kind of the model's source.
    """
    if kind == "ensemble":
        triton = triton.model_copy(update=NOT_FOR_ENSEMBLES)
    try:
        config = section_config(triton)
    except json_format.ParseError as error:
        yield (), Finding("config.value", "error", f"cannot be written to config.pbtxt: {error}", "")
        return
    # An ensemble has no backend; like Python code, it is not subject to the rules of the ONNX Runtime backend.
    config.backend = "python" if kind in {"python", "ensemble"} else "onnxruntime"
    config.max_batch_size = _UNKNOWN_BATCH if triton.max_batch_size == "auto" else triton.max_batch_size
    _add_tensors(config, triton)
    for control_input in config.sequence_batching.control_input:
        _complete_controls(control_input)
    for state in config.sequence_batching.state:
        _complete_state(state)
    yield from _warmup_findings(config)
    try:
        merge_extra(config, triton.extra, "")
    except ConfigError as error:
        yield ("extra",), Finding(error.code, "error", error.message, error.hint)
    for finding in config_findings(config):
        if _is_mistake(finding):
            path = spec_key(config, finding.field)
            yield path if path and path[0] in triton.model_fields_set else ("extra",), finding


def tensorrt_findings(triton: TritonSpec) -> Iterator[tuple[KeyPath, Finding]]:
    """Yield the rules that the parameters in ``tensorrt`` violate; its profiles do not exist before the graph."""
    if triton.tensorrt is None or not triton.tensorrt.parameters:
        return
    accelerator = AcceleratorSpec(name=TENSORRT, parameters=triton.tensorrt.parameters)
    accelerators = AcceleratorsSpec(gpu_execution_accelerator=(accelerator,))
    optimization = OptimizationSpec(execution_accelerators=accelerators)
    on_gpu = (InstanceGroupSpec(kind="KIND_GPU"),)
    config = section_config(TritonSpec(optimization=optimization, instance_group=on_gpu))
    for finding in accelerator_findings(config, newest_target()):
        path = spec_key(config, finding.field)
        yield ("tensorrt", *path[path.index("parameters") :]), finding


def spec_key(config: Message, field: str) -> KeyPath:
    """Return the key path, below ``triton``, of a field of ModelConfig: tensors are listed by name.

    Args:
        config: The config of the finding.
        field: The path of the field in a finding.
    """
    path: list[str | int] = []
    for match in _PATH_PART.finditer(field):
        if match["name"] is not None:
            path.append(match["name"])
        elif match["key"] is not None:
            path.append(str(json.loads(match["key"])))
        elif path in (["input"], ["output"]):
            path.append(getattr(config, str(path[0]))[int(match["index"])].name)
        else:
            path.append(int(match["index"]))
    return tuple(path)


def _is_mistake(finding: Finding) -> bool:
    misspelled = finding.code == "RG128" and bool(finding.fix)
    return finding.severity == "error" or finding.code in _REJECTED_WARNINGS or misspelled


def _add_tensors(config: Message, triton: TritonSpec) -> None:
    sources = [entry.source_input[0] for entry in triton.batch_input]
    sources += [entry.source_input[0] for entry in triton.batch_output]
    targets = [entry.target_name[0] for entry in triton.batch_output]
    for name in dict.fromkeys((*triton.input, *sources)) or ("input",):
        tensor = config.input.add(name=name, data_type="TYPE_FP32")
        settings = triton.input.get(name)
        if settings is None:
            tensor.dims.append(1)
            continue
        is_image = settings.format not in {None, "FORMAT_NONE"}
        tensor.dims.extend(settings.dims or ((1, 1, 1) if is_image else (1,)))
        tensor.format = settings.format or 0
        tensor.allow_ragged_batch = settings.allow_ragged_batch
        # With `auto`, the model may turn out not to batch, which allows optional inputs.
        tensor.optional = settings.optional and triton.max_batch_size != "auto"
        if settings.reshape is not None and settings.dims is not None:
            _set_reshape(tensor, settings.reshape.shape)
    for name in dict.fromkeys((*triton.output, *targets)) or ("output",):
        tensor = config.output.add(name=name, data_type="TYPE_FP32")
        output = triton.output.get(name)
        tensor.dims.extend((output and output.dims) or (1,))
        if output is not None and output.reshape is not None and output.dims is not None:
            _set_reshape(tensor, output.reshape.shape)
    for entry in config.batch_input:
        entry.data_type = entry.data_type or "TYPE_FP32"


def _set_reshape(tensor: AnyMessage, shape: Iterable[int]) -> None:
    tensor.reshape.SetInParent()  # type: ignore[attr-defined] # a ModelInput or ModelOutput
    tensor.reshape.shape.extend(shape)  # type: ignore[attr-defined] # the same


def _complete_controls(control_input: ModelSequenceBatching.ControlInput) -> None:
    for control in control_input.control:
        if type(control).Kind.Name(control.kind) == "CONTROL_SEQUENCE_CORRID":
            control.data_type = control.data_type or "TYPE_UINT64"
        elif not (control.int32_false_true or control.fp32_false_true or control.bool_false_true):
            control.int32_false_true.extend([0, 1])


def _complete_state(state: ModelSequenceBatching.State) -> None:
    if not state.initial_state:
        state.initial_state.add(zero_data=True)
    first = state.initial_state[0]
    state.data_type = state.data_type or first.data_type or "TYPE_FP32"
    if not state.dims:
        state.dims.extend(first.dims or [1])
    for initial in state.initial_state:
        initial.name = initial.name or state.input_name
        initial.data_type = initial.data_type or state.data_type
        if not initial.dims:
            initial.dims.extend(max(dim, 1) for dim in state.dims)


def _warmup_findings(config: Message) -> Iterator[tuple[KeyPath, Finding]]:
    """Add the inputs to the warmups of a message; if they would have more values than a config can have, remove them.

    Yields:
        A finding if they were removed.
    """
    if problem := excessive_warmups(len(config.model_warmup), [len(tensor.dims) for tensor in config.input]):
        config.ClearField("model_warmup")
        yield ("model_warmup",), Finding("config.warmup", "error", problem, "remove warmups")
        return
    _complete_warmups(config)


def _complete_warmups(config: Message) -> None:
    controls = [tensor.name for tensor in config.sequence_batching.control_input]
    for warmup in config.model_warmup:
        for tensor in config.input:
            value = warmup.inputs[tensor.name]
            value.data_type, value.zero_data = tensor.data_type, True
            value.dims.extend(max(dim, 1) for dim in tensor.dims)
        for name in controls:
            warmup.inputs[name].zero_data = True
