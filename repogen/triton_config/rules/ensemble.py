"""Rules for ensemble_scheduling alone; ``ensemble_repository`` compares the steps with the models that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding, listed
from repogen.triton_config.rules.identity import ENSEMBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

_ENSEMBLE_INPUT = -1
"""In place of a step's index: the tensor is an input of the ensemble."""


def ensemble_config_findings(config: ModelConfig) -> Iterator[Finding]:
    """Yield the violations in an ensemble's config, whatever its models are."""
    if not config.HasField("ensemble_scheduling"):
        if config.platform == ENSEMBLE:
            message = "platform is ensemble, but ensemble_scheduling is missing"
            yield Finding("RG123", "error", message, "add ensemble_scheduling with its steps", "platform")
        return
    if config.platform != ENSEMBLE:
        fix = 'platform: "ensemble"'
        message = f"an ensemble has platform {config.platform!r}"
        yield Finding("RG123", "error", message, f"write {fix}", "platform", fix)
    for key in ("instance_group", "optimization", "model_warmup", "default_model_filename"):
        if config.HasField(key) if key == "optimization" else getattr(config, key):
            message = f"an ensemble has {key}, which applies only to the models of its steps"
            yield Finding("RG123", "error", message, "remove it, and set it in the configs of these models", key)
    if not config.ensemble_scheduling.step:
        yield Finding("RG123", "error", "the ensemble has no steps", "add its steps", "ensemble_scheduling")
        return
    yield from _step_findings(config)
    yield from _tensor_findings(config)


def _step_findings(config: ModelConfig) -> Iterator[Finding]:
    for index, step in enumerate(config.ensemble_scheduling.step):
        path = f"ensemble_scheduling.step[{index}]"
        if not step.model_name:
            yield Finding("RG123", "error", f"step {index + 1} has no model_name", "write model_name", path)
        if step.model_version < -1:
            message = f"step {index + 1} uses version {step.model_version} of {step.model_name!r}"
            hint = "write model_version: -1 for the newest version, or a version"
            yield Finding("RG123", "error", message, hint, f"{path}.model_version")
        for key, tensor_map in (("input_map", step.input_map), ("output_map", step.output_map)):
            if not tensor_map:
                message = f"step {index + 1} ({step.model_name!r}) has no {key}"
                yield Finding("RG123", "error", message, f"map each {key.removesuffix('_map')} of the model", path)


def _tensor_findings(config: ModelConfig) -> Iterator[Finding]:
    producers, findings = _producers(config)
    hint = f"available tensors: {listed(sorted(producers))}"
    used_tensors: set[str] = set()
    for index, step in enumerate(config.ensemble_scheduling.step):
        for name in step.input_map.values():
            used_tensors.add(name)
            if name not in producers:
                message = f"step {index + 1} ({step.model_name!r}) reads tensor {name!r}, which no step produces"
                path = f"ensemble_scheduling.step[{index}].input_map"
                findings.append(Finding("RG504", "error", message, hint, path))
    findings += _signature_findings(config, producers, used_tensors)
    # A misspelled name is missing on one side and unused on the other: report it once.
    yield from findings or _unused_findings(config, producers, used_tensors)
    yield from _cycle_findings(config, producers)


def _producers(config: ModelConfig) -> tuple[dict[str, int], list[Finding]]:
    """Return the index of the step that produces each tensor, and a finding for each tensor produced twice."""
    findings = []
    producers = dict.fromkeys((tensor.name for tensor in config.input), _ENSEMBLE_INPUT)
    for index, step in enumerate(config.ensemble_scheduling.step):
        for name in step.output_map.values():
            if name in producers:
                first = producers[name]
                description = (
                    "an input of the ensemble" if first == _ENSEMBLE_INPUT else f"an output of step {first + 1}"
                )
                message = f"tensor {name!r} is an output of step {index + 1} and also {description}"
                path = f"ensemble_scheduling.step[{index}].output_map"
                findings.append(Finding("RG504", "error", message, "use a unique name for each tensor", path))
            producers.setdefault(name, index)
    return producers, findings


def _signature_findings(config: ModelConfig, producers: dict[str, int], used_tensors: set[str]) -> Iterator[Finding]:
    for index, tensor in enumerate(config.output):
        if producers.get(tensor.name, _ENSEMBLE_INPUT) == _ENSEMBLE_INPUT:
            message = f"no step produces output {tensor.name!r} of the ensemble"
            yield Finding("RG504", "error", message, "map a step's output to it", f"output[{index}]")
    for index, tensor in enumerate(config.input):
        if tensor.name not in used_tensors:
            message = f"input {tensor.name!r} of the ensemble is not used by any step"
            yield Finding("RG504", "error", message, "map it to a step's input, or remove it", f"input[{index}]")


def _unused_findings(config: ModelConfig, producers: dict[str, int], used_tensors: set[str]) -> Iterator[Finding]:
    outputs = {tensor.name for tensor in config.output}
    for name, index in producers.items():
        if index != _ENSEMBLE_INPUT and name not in used_tensors and name not in outputs:
            message = f"tensor {name!r} of step {index + 1} is never used"
            hint = "remove it from output_map, or make it an output of the ensemble"
            yield Finding("RG504", "error", message, hint, f"ensemble_scheduling.step[{index}].output_map")


def _cycle_findings(config: ModelConfig, producers: dict[str, int]) -> Iterator[Finding]:
    steps = config.ensemble_scheduling.step
    requirements = {
        index: {producers[name] for name in step.input_map.values() if name in producers} - {_ENSEMBLE_INPUT}
        for index, step in enumerate(steps)
    }
    followers: dict[int, list[int]] = {}
    for index, required in requirements.items():
        for step in required:
            followers.setdefault(step, []).append(index)
    ready = [index for index, required in requirements.items() if not required]
    while ready:
        done = ready.pop()
        del requirements[done]
        for index in followers.get(done, ()):
            requirements[index].discard(done)
            if not requirements[index]:
                ready.append(index)
    if blocked := sorted(requirements):
        names = listed(f"{index + 1} ({steps[index].model_name!r})" for index in blocked)
        message = f"steps form a cycle: {names}"
        field = f"ensemble_scheduling.step[{blocked[0]}]"
        yield Finding("RG505", "error", message, "break the cycle", field)
