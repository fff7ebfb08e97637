"""optimization, parameters, and how a model schedules and answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from repogen.pbtxt.findings import Finding
from repogen.pbtxt.rules.identity import is_onnx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.pbtxt.findings import Severity

_GRAPH_LEVELS = range(-1, 3)  # -1 basic, 1 extended, 2 all in the backend; 0 is its default
_GPU_ACCELERATORS = frozenset({"tensorrt", "cuda", "gpu_io"})
_CPU_ACCELERATORS = frozenset({"openvino"})
# Source: triton-inference-server/onnxruntime_backend, README and src/onnxruntime.cc.
_NUMBERS = frozenset({
    "intra_op_thread_count", "inter_op_thread_count", "execution_mode", "cudnn_conv_algo_search", "gpu_mem_limit",
    "arena_extend_strategy",
})  # fmt: skip
_SWITCHES = frozenset({
    "enable_mem_arena", "enable_mem_pattern", "use_device_allocator_for_initializers",
})  # fmt: skip
_TRUTHS = frozenset({"true", "false", "1", "0"})
_FREE = re.compile(r"^(memory\.|session\.|ep\.|optimization\.|disable_|mlas\.)")
_NEAR = {"intra_op_num_threads": "intra_op_thread_count", "inter_op_num_threads": "inter_op_thread_count"}
_OF_TRITON = frozenset({"execution_mode", "TRITON_BATCH_STRATEGY_PATH", "MAX_BATCH_VOLUME_BYTES"})


def optimization_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with optimization, parameters, and what does not go together."""
    yield from _graph_level(config)
    yield from _accelerators(config)
    yield from _parameters(config)
    yield from _scheduling(config)


def _graph_level(config: ModelConfig) -> Iterator[Finding]:
    level = config.optimization.graph.level
    if is_onnx(config) and level not in _GRAPH_LEVELS:
        message = f"optimization.graph.level is {level}, and the ONNX Runtime backend knows -1, 0, 1 and 2"
        yield Finding("RG126", "warning", message, "leave it out for all optimizations", "optimization.graph.level")


def _accelerators(config: ModelConfig) -> Iterator[Finding]:
    if not is_onnx(config):
        return
    given = config.optimization.execution_accelerators
    on_gpu = any(group.kind == group.KIND_GPU for group in config.instance_group)
    for kind, entries, known in (
        ("gpu", given.gpu_execution_accelerator, _GPU_ACCELERATORS),
        ("cpu", given.cpu_execution_accelerator, _CPU_ACCELERATORS),
    ):
        for index, accelerator in enumerate(entries):
            if accelerator.name not in known:
                path = f"optimization.execution_accelerators.{kind}_execution_accelerator[{index}]"
                message = f"{kind}_execution_accelerator is {accelerator.name!r}"
                # those of the GPU are looked at where an instance runs on one
                severity: Severity = "error" if kind == "cpu" or on_gpu else "warning"
                yield Finding("RG127", severity, message, f"the backend has {', '.join(sorted(known))}", path)


def _parameters(config: ModelConfig) -> Iterator[Finding]:
    if not is_onnx(config):
        return
    for index, (name, parameter) in enumerate(config.parameters.items()):
        path, value = f"parameters[{index}]", parameter.string_value
        if wrong := _unreadable(name, value):
            yield Finding("RG128", "error", f"parameter {name!r} is {value!r}: {wrong}", "write one, or drop it", path)
        elif name in _NUMBERS and value.strip().startswith("-"):
            message = f"parameter {name!r} is {value}"
            yield Finding("RG128", "warning", message, "leave it out for ONNX Runtime's own choice", path)
        elif name in _NEAR:
            fix = f'parameters {{ key: "{_NEAR[name]}" value {{ string_value: "{value}" }} }}'
            message = f"parameter {name!r} is unknown to the ONNX Runtime backend, which ignores it"
            yield Finding("RG128", "warning", message, f"write {_NEAR[name]!r}", path, fix)
        elif name not in _NUMBERS | _SWITCHES | _OF_TRITON and not _FREE.match(name):
            message = f"parameter {name!r} is unknown to the ONNX Runtime backend, which ignores it"
            yield Finding("RG128", "warning", message, f"it knows {', '.join(sorted(_NUMBERS | _SWITCHES))}", path)


def _unreadable(name: str, value: str) -> str:
    """Return what the backend would have instead of a parameter's value; empty where it can read it.

    Source: ParseIntValue (std::stoi) and ParseBoolValue of triton-inference-server/backend.
    """
    if name in _NUMBERS:
        match = re.match(r"\s*[-+]?\d+", value)
        if match is None or not -(2**31) <= int(match[0]) < 2**31:
            return "a number of 32 bits is read from it"
        return "it takes 0 or 1" if name == "execution_mode" and int(match[0]) not in {0, 1} else ""
    return "it takes true, false, 1 or 0" if name in _SWITCHES and value.lower() not in _TRUTHS else ""


def _scheduling(config: ModelConfig) -> Iterator[Finding]:
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        message = "response_cache is on for a decoupled model, whose answers are not one"
        yield Finding("RG130", "error", message, "drop one of both", "response_cache")
    if config.response_cache.enable and config.HasField("sequence_batching"):
        message = "response_cache is on for sequences, whose answers hang on what came before"
        yield Finding("RG130", "error", message, "drop response_cache", "response_cache")
