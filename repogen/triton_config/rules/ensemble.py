"""ensemble_scheduling by itself; whether its steps fit the models they name is for who sees the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import ENSEMBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig


def ensemble_rules(config: ModelConfig) -> Iterator[Finding]:
    """Yield what is wrong with an ensemble, whatever its models are."""
    if not config.HasField("ensemble_scheduling"):
        if config.platform == ENSEMBLE:
            message = "platform is ensemble, and there is no ensemble_scheduling"
            yield Finding("RG123", "error", message, "write its steps", "platform")
        return
    if config.platform != ENSEMBLE:
        fix = 'platform: "ensemble"'
        message = f"an ensemble's platform is {config.platform!r}"
        yield Finding("RG123", "error", message, f"write {fix}", "platform", fix)
    for key in ("instance_group", "optimization", "model_warmup", "default_model_filename"):
        if config.HasField(key) if key == "optimization" else getattr(config, key):
            message = f"an ensemble has {key}, and runs nothing of its own"
            yield Finding("RG123", "error", message, "drop it: what its models say counts", key)
    if not config.ensemble_scheduling.step:
        yield Finding("RG123", "error", "the ensemble has no step", "write its steps", "ensemble_scheduling")
        return
    yield from _steps(config)
    yield from _tensors(config)


def _steps(config: ModelConfig) -> Iterator[Finding]:
    for index, step in enumerate(config.ensemble_scheduling.step):
        path = f"ensemble_scheduling.step[{index}]"
        if not step.model_name:
            yield Finding("RG123", "error", f"step {index + 1} names no model", "write model_name", path)
        if step.model_version < -1:
            message = f"step {index + 1} asks for version {step.model_version} of {step.model_name!r}"
            hint = "write model_version: -1 for the newest, or a version"
            yield Finding("RG123", "error", message, hint, f"{path}.model_version")
        for key, mapped in (("input_map", step.input_map), ("output_map", step.output_map)):
            if not mapped:
                message = f"step {index + 1} ({step.model_name!r}) has no {key}"
                yield Finding("RG123", "error", message, f"map each {key.removesuffix('_map')} of the model", path)


def _tensors(config: ModelConfig) -> Iterator[Finding]:
    made, found = _made(config)
    read: set[str] = set()
    for index, step in enumerate(config.ensemble_scheduling.step):
        for name in step.input_map.values():
            read.add(name)
            if name not in made:
                message = f"step {index + 1} ({step.model_name!r}) reads {name!r}, which nothing makes"
                hint = f"there are {', '.join(sorted(made))}"
                path = f"ensemble_scheduling.step[{index}].input_map"
                found.append(Finding("RG504", "error", message, hint, path))
    found += _ends(config, made, read)
    yield from found or _unused(config, made, read)  # what is misspelled on one side is unused on the other
    yield from _circle(config, made)


def _made(config: ModelConfig) -> tuple[dict[str, int], list[Finding]]:
    """Return the step that makes each tensor, -1 for an input of the ensemble; and what is made twice."""
    found = []
    made = dict.fromkeys((tensor.name for tensor in config.input), -1)
    for index, step in enumerate(config.ensemble_scheduling.step):
        for name in step.output_map.values():
            if name in made:
                by = "the ensemble's input" if made[name] < 0 else f"step {made[name] + 1}"
                message = f"tensor {name!r} is made by step {index + 1}, and is {by}, too"
                path = f"ensemble_scheduling.step[{index}].output_map"
                found.append(Finding("RG504", "error", message, "give each tensor a name of its own", path))
            made.setdefault(name, index)
    return made, found


def _ends(config: ModelConfig, made: dict[str, int], read: set[str]) -> Iterator[Finding]:
    for index, tensor in enumerate(config.output):
        if made.get(tensor.name, -1) < 0:
            message = f"output {tensor.name!r} of the ensemble is made by no step"
            yield Finding("RG504", "error", message, "map a step's output to it", f"output[{index}]")
    for index, tensor in enumerate(config.input):
        if tensor.name not in read:
            message = f"input {tensor.name!r} of the ensemble goes into no step"
            yield Finding("RG504", "error", message, "map it to a step's input, or drop it", f"input[{index}]")


def _unused(config: ModelConfig, made: dict[str, int], read: set[str]) -> Iterator[Finding]:
    wanted = read | {tensor.name for tensor in config.output}
    for name, index in made.items():
        if index >= 0 and name not in wanted:
            message = f"tensor {name!r} of step {index + 1} goes nowhere"
            hint = "drop it from output_map, or make it an output of the ensemble"
            yield Finding("RG504", "error", message, hint, f"ensemble_scheduling.step[{index}].output_map")


def _circle(config: ModelConfig, made: dict[str, int]) -> Iterator[Finding]:
    waits = {
        index: {made[name] for name in step.input_map.values() if made.get(name, -1) >= 0}
        for index, step in enumerate(config.ensemble_scheduling.step)
    }
    done: set[int] = set()
    while ready := [index for index, of in waits.items() if index not in done and of <= done]:
        done.update(ready)
    if stuck := sorted(set(waits) - done):
        listed = ", ".join(f"{index + 1} ({config.ensemble_scheduling.step[index].model_name!r})" for index in stuck)
        message = f"steps wait for each other's outputs: {listed}"
        yield Finding("RG505", "error", message, "break the circle", f"ensemble_scheduling.step[{stuck[0]}]")
