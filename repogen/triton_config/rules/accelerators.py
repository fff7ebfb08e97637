"""Rules for ``optimization.execution_accelerators`` and their parameters.

Source: ``LoadModel`` in src/onnxruntime.cc of triton-inference-server/onnxruntime_backend, which parses the parameters
of TensorRT, and passes those of CUDA to ONNX Runtime. It reads none of OpenVINO.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from repogen.targets import accelerators_of
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.parse import quoted
from repogen.triton_config.text.source_map import entry_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.targets import Accelerator, AcceleratorParameter, Target
    from repogen.triton_config.rules.findings import Severity

BOOLEANS = frozenset({"true", "on", "1", "false", "off", "0"})
"""What ParseBoolValue of triton-inference-server/backend accepts, in lower case."""
_SIMILAR = 0.7
TENSORRT = "tensorrt"
"""Name of the accelerator."""
TENSORRT_11 = "26.07"
"""The first release with TensorRT 11, which has no builder flags for precisions."""
_PRECISIONS = frozenset({"FP16", "BF16", "INT8"})


def integer_reason(value: str) -> str:
    """Return why ParseIntValue (``std::stoi``) rejects a value; empty if it does not.

    >>> integer_reason("4 cores"), integer_reason("four")
    ('', 'it must be a 32-bit integer')
    """
    match = re.match(r"\s*[-+]?\d+", value)
    return "" if match and -(2**31) <= int(match[0]) < 2**31 else "it must be a 32-bit integer"


def boolean_reason(value: str) -> str:
    """Return why ParseBoolValue rejects a value; empty if it does not.

    >>> boolean_reason("On"), boolean_reason("yes")
    ('', 'it must be true, on, 1, false, off or 0')
    """
    return "" if value.lower() in BOOLEANS else "it must be true, on, 1, false, off or 0"


def accelerator_findings(config: ModelConfig, target: Target) -> Iterator[Finding]:
    """Yield the violations in execution_accelerators of a model of the ONNX Runtime backend.

    Args:
        config: The parsed config.
        target: The Triton release, which decides which accelerators and parameters exist.
    """
    entries = config.optimization.execution_accelerators
    on_gpu = any(group.kind == group.KIND_GPU for group in config.instance_group)
    supported = accelerators_of(target)
    for device in ("gpu", "cpu"):
        # The backend reads GPU accelerators only for instances on a GPU.
        severity: Severity = "error" if device == "cpu" or on_gpu else "warning"
        names = sorted(accelerator.name for accelerator in supported.values() if accelerator.device == device)
        for index, entry in enumerate(getattr(entries, f"{device}_execution_accelerator")):
            field = f"optimization.execution_accelerators.{device}_execution_accelerator[{index}]"
            if entry.name not in names:
                message = f"{device}_execution_accelerator {entry.name!r} is not supported by the backend"
                hint = f"it supports {', '.join(names)}"
                yield Finding("RG127", severity, message, hint, field)
                continue
            yield from _parameter_findings(supported[entry.name], dict(entry.parameters), field, severity)
            if entry.name == TENSORRT:
                yield from _precision_findings(entry.parameters.get("precision_mode", ""), field, target)


def _parameter_findings(
    accelerator: Accelerator, values: dict[str, str], field: str, severity: Severity
) -> Iterator[Finding]:
    parameters = accelerator.parameters
    if values and not parameters:
        message = f"the parameters of accelerator {accelerator.name!r} have no effect: the backend does not read them"
        path = entry_path(f"{field}.parameters", min(values))
        yield Finding("RG135", "warning", message, f"remove {', '.join(sorted(values))}", path)
        return
    for name in sorted(values):
        path = entry_path(f"{field}.parameters", name)
        subject = f"parameter {name!r} of accelerator {accelerator.name!r}"
        if name not in parameters:
            yield _unknown_finding(accelerator, name, values[name], path, severity)
        elif reason := _value_reason(parameters[name], values[name]):
            message = f"{subject} is {values[name]!r}, but {reason}"
            yield Finding("RG135", severity, message, "correct the value, or remove the parameter", path)


def _unknown_finding(accelerator: Accelerator, name: str, value: str, path: str, severity: Severity) -> Finding:
    similar = get_close_matches(name, sorted(accelerator.parameters), n=1, cutoff=_SIMILAR)
    message = f"accelerator {accelerator.name!r} has no parameter {name!r}"
    if not similar:
        hint = f"it has {', '.join(sorted(accelerator.parameters))}"
        return Finding("RG135", severity, message, hint, path)
    fix = f"parameters {{ key: {quoted(similar[0])} value: {quoted(value)} }}"
    return Finding("RG135", severity, message, f"did you mean {similar[0]!r}?", path, fix)


def _value_reason(parameter: AcceleratorParameter, value: str) -> str:
    """Return why the backend rejects a value; empty if it does not."""
    if parameter.type == "integer":
        return integer_reason(value)
    if parameter.type == "unsigned":
        return "" if re.match(r"\s*[-+]?\d+", value) else "it must be an integer"
    if parameter.type == "boolean":
        return boolean_reason(value)
    if parameter.type == "choice" and value not in parameter.values:
        return f"it must be {', '.join(parameter.values[:-1])} or {parameter.values[-1]}"
    return ""


def _precision_findings(precision: str, field: str, target: Target) -> Iterator[Finding]:
    if precision in _PRECISIONS and target.release >= TENSORRT_11:
        message = f"precision_mode {precision} has no effect in Triton {target.release}: TensorRT 11 uses the types of "
        hint = "convert or quantize the graph, and remove precision_mode"
        path = entry_path(f"{field}.parameters", "precision_mode")
        yield Finding("RG127", "warning", message + "the graph", hint, path)
