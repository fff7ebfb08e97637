"""Rules for how a model runs: instance_group, optimization, the backend's parameters, and response_cache.

Source of the parameters: triton-inference-server/onnxruntime_backend, README and src/onnxruntime.cc; ParseIntValue
(std::stoi) and ParseBoolValue of triton-inference-server/backend.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from repogen.triton_config.rules.accelerators import accelerator_findings, boolean_reason, integer_reason
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_onnx, is_tensorrt
from repogen.triton_config.text.parse import quoted
from repogen.triton_config.text.source_map import entry_path
from repogen.triton_config.text.view import dims_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

    from repogen.targets import Target

_MAX_PLAUSIBLE_INSTANCES = 64
_GRAPH_LEVELS = range(-1, 3)  # in the backend: -1 basic, 0 (the default) all, 1 extended, 2 none

# Python reads no number of more than 4300 digits.
_INTEGER = re.compile(r"\s*([-+]?)0*(\d{1,10})(?!\d)", re.ASCII)
_INTEGER_PARAMETERS = frozenset({
    "intra_op_thread_count", "inter_op_thread_count", "execution_mode", "cudnn_conv_algo_search",
    "arena_extend_strategy",
})  # fmt: skip
_SIZE_PARAMETERS = frozenset({"gpu_mem_limit"})
"""Source: the backend's README and onnxruntime.cc, which parse it as size_t, or forward it as text."""
_SIZE = re.compile(r"\s*\+?0*(?P<number>\d{1,20})\s*", re.ASCII)
_MAX_SIZE = 2**64 - 1
_BOOLEAN_PARAMETERS = frozenset({
    "enable_mem_arena", "enable_mem_pattern", "share_session_between_instances",
    "use_device_allocator_for_initializers",
})  # fmt: skip
_FORWARDED_PARAMETERS = frozenset({
    "memory.enable_memory_arena_shrinkage", "session.use_device_allocator_for_initializers",
    "do_copy_in_default_stream",
})  # fmt: skip
_TRITON_PARAMETERS = frozenset({"TRITON_BATCH_STRATEGY_PATH", "MAX_BATCH_VOLUME_BYTES"})
_PARAMETERS = _INTEGER_PARAMETERS | _SIZE_PARAMETERS | _BOOLEAN_PARAMETERS | _FORWARDED_PARAMETERS | _TRITON_PARAMETERS
_FORWARDED_PREFIX = re.compile(r"^(memory\.|session\.|ep\.|optimization\.|disable_|mlas\.)")
_ONNXRUNTIME_NAMES = {"intra_op_num_threads": "intra_op_thread_count", "inter_op_num_threads": "inter_op_thread_count"}
_SIMILAR = 0.85


def execution_findings(config: ModelConfig, target: Target) -> Iterator[Finding]:
    """Yield the violations in instance_group, optimization, parameters and response_cache."""
    yield from _instance_group_findings(config)
    if is_onnx(config):
        yield from _graph_level_findings(config)
        yield from accelerator_findings(config, target)
        yield from _parameter_findings(config)
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        message = "response_cache is enabled for a decoupled model, which returns several responses per request"
        yield Finding("RG130", "error", message, "remove response_cache, or decoupled", "response_cache")
    if config.response_cache.enable and config.HasField("sequence_batching"):
        message = "response_cache is enabled for a sequence model, whose responses depend on earlier requests"
        yield Finding("RG130", "error", message, "remove response_cache", "response_cache")


def suggested_parameter(name: str) -> str:
    """Return the backend parameter that a misspelled name probably means; empty for supported and for other names.

    >>> suggested_parameter("intra_op_num_threads"), suggested_parameter("enable_mem_arenas")
    ('intra_op_thread_count', 'enable_mem_arena')
    >>> suggested_parameter("enable_mem_arena"), suggested_parameter("note")
    ('', '')
    """
    if name in _PARAMETERS:
        return ""
    similar = get_close_matches(name, sorted(_PARAMETERS), n=1, cutoff=_SIMILAR)
    return _ONNXRUNTIME_NAMES.get(name, similar[0] if similar else "")


def invalid_value_reason(name: str, value: str) -> str:
    """Return why the backend rejects a parameter's value; empty if it does not.

    >>> invalid_value_reason("enable_mem_arena", "yes"), invalid_value_reason("intra_op_thread_count", "2")
    ('it must be true, on, 1, false, off or 0', '')
    """
    if name in _INTEGER_PARAMETERS:
        if reason := integer_reason(value):
            return reason
        return "it must be 0 or 1" if name == "execution_mode" and _leading_integer(value) not in {0, 1} else ""
    if name in _SIZE_PARAMETERS:
        size = _SIZE.fullmatch(value)
        return "" if size and int(size["number"]) <= _MAX_SIZE else "it must be a number of bytes, at most 2^64 - 1"
    return boolean_reason(value) if name in _BOOLEAN_PARAMETERS else ""


def _leading_integer(value: str) -> int:
    match = re.match(r"\s*[-+]?\d+", value)
    return int(match[0]) if match else 0


def _instance_group_findings(config: ModelConfig) -> Iterator[Finding]:
    names: set[str] = set()
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}]"
        if group.profile and not is_tensorrt(config):
            message = "an instance group has a profile, which only TensorRT supports"
            hint = "remove it; the TensorRT accelerator has trt_profile_… parameters"
            yield Finding("RG130", "error", message, hint, f"{path}.profile")
        yield from _gpu_findings(path, group)
        yield from _count_findings(path, group)
        if group.name in names:
            message = f"several instance groups are named {group.name!r}"
            yield Finding("RG112", "warning", message, "use a unique name for each group", f"{path}.name")
        names |= {group.name} - {""}


def _gpu_findings(path: str, group: ModelInstanceGroup) -> Iterator[Finding]:
    kind = type(group).Kind.Name(group.kind)
    if group.gpus and kind in {"KIND_CPU", "KIND_MODEL"}:
        message = f"an instance group of {kind} has gpus {dims_text(group.gpus)}"
        yield Finding("RG110", "error", message, "use KIND_GPU, or remove gpus", f"{path}.gpus")
    if negative := [gpu for gpu in group.gpus if gpu < 0]:
        message = f"an instance group has GPU {negative[0]}"
        yield Finding("RG110", "error", message, "GPUs are numbered from 0", f"{path}.gpus")


def _count_findings(path: str, group: ModelInstanceGroup) -> Iterator[Finding]:
    if group.count < 0:
        message = f"an instance group has count {group.count}, and Triton uses its own default instead"
        yield Finding("RG111", "warning", message, "use a count of 1 or more", f"{path}.count")
    if group.count > _MAX_PLAUSIBLE_INSTANCES:
        message = f"an instance group has {group.count} instances, each with a copy of the model in memory"
        yield Finding("RG111", "warning", message, "a few instances are usually enough; measure first", f"{path}.count")
    for index, resource in enumerate(group.rate_limiter.resources):
        field = f"{path}.rate_limiter.resources[{index}]"
        if not resource.name:
            yield Finding("RG131", "warning", "a rate limiter resource has no name", "add a name", field)
        if not resource.count:
            message = f"rate limiter resource {resource.name!r} has count 0"
            yield Finding("RG131", "warning", message, "use a count of 1 or more", field)


def _graph_level_findings(config: ModelConfig) -> Iterator[Finding]:
    level = config.optimization.graph.level
    if level not in _GRAPH_LEVELS:
        message = f"optimization.graph.level is {level}, but the ONNX Runtime backend supports -1, 0, 1 and 2"
        hint = "remove it to enable all optimizations"
        yield Finding("RG126", "warning", message, hint, "optimization.graph.level")


def _parameter_findings(config: ModelConfig) -> Iterator[Finding]:
    for name in sorted(config.parameters):
        value = config.parameters[name].string_value
        field = entry_path("parameters", name)
        unsupported = f"parameter {name!r} is not supported by the ONNX Runtime backend, which ignores it"
        if reason := invalid_value_reason(name, value):
            message = f"parameter {name!r} is {value!r}, but {reason}"
            yield Finding("RG128", "error", message, "correct the value, or remove the parameter", field)
        elif name in _INTEGER_PARAMETERS and value.strip().startswith("-"):
            message = f"parameter {name!r} is {value}"
            yield Finding("RG128", "warning", message, "remove it to use the default of ONNX Runtime", field)
        elif suggestion := suggested_parameter(name):
            fix = f"parameters {{ key: {quoted(suggestion)} value {{ string_value: {quoted(value)} }} }}"
            yield Finding("RG128", "warning", unsupported, f"did you mean {suggestion!r}?", field, fix, guess=True)
        elif name not in _PARAMETERS and not _FORWARDED_PREFIX.match(name):
            supported = ", ".join(sorted(_INTEGER_PARAMETERS | _SIZE_PARAMETERS | _BOOLEAN_PARAMETERS))
            yield Finding("RG128", "warning", unsupported, f"it supports {supported}", field)
