"""optimization, parameters, and how a model schedules and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.backend_parameters import NUMBERS, SWITCHES, is_known, meant_by, unreadable
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_onnx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.triton_config.rules.findings import Severity

_GRAPH_LEVELS = range(-1, 3)  # -1 basic, 1 extended, 2 all in the backend; 0 is its default
_GPU_ACCELERATORS = frozenset({"tensorrt", "cuda", "gpu_io"})
_CPU_ACCELERATORS = frozenset({"openvino"})


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
        if wrong := unreadable(name, value):
            yield Finding("RG128", "error", f"parameter {name!r} is {value!r}: {wrong}", "write one, or drop it", path)
        elif name in NUMBERS and value.strip().startswith("-"):
            message = f"parameter {name!r} is {value}"
            yield Finding("RG128", "warning", message, "leave it out for ONNX Runtime's own choice", path)
        elif meant := meant_by(name):
            fix = f'parameters {{ key: "{meant}" value {{ string_value: "{value}" }} }}'
            message = f"parameter {name!r} is unknown to the ONNX Runtime backend, which ignores it"
            yield Finding("RG128", "warning", message, f"write {meant!r}", path, fix)
        elif not is_known(name):
            message = f"parameter {name!r} is unknown to the ONNX Runtime backend, which ignores it"
            yield Finding("RG128", "warning", message, f"it knows {', '.join(sorted(NUMBERS | SWITCHES))}", path)


def _scheduling(config: ModelConfig) -> Iterator[Finding]:
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        message = "response_cache is on for a decoupled model, whose answers are not one"
        yield Finding("RG130", "error", message, "drop one of both", "response_cache")
    if config.response_cache.enable and config.HasField("sequence_batching"):
        message = "response_cache is on for sequences, whose answers hang on what came before"
        yield Finding("RG130", "error", message, "drop response_cache", "response_cache")
