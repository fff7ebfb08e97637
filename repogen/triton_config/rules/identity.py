"""Who the model is, what serves it, and which versions."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

ONNX_PLATFORM = "onnxruntime_onnx"
ONNX_BACKEND = "onnxruntime"
ENSEMBLE = "ensemble"
# What NVIDIA's containers ship. Source: triton-inference-server/backend, "Where can I find all the backends".
_BACKENDS = frozenset({
    "onnxruntime", "python", "pytorch", "tensorrt", "tensorflow", "openvino", "dali", "fil", "identity", "vllm",
    "tensorrtllm", "repeat", "square",
})  # fmt: skip
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "pytorch_libtorch": "pytorch",
    "ensemble": "",
}


def is_onnx(config: ModelConfig) -> bool:
    """Whether Triton hands the model to its ONNX Runtime backend; a config that says nothing gets it by its file."""
    if is_ensemble(config):
        return False
    said = config.backend or _PLATFORMS.get(config.platform, config.platform)
    return said in {"", ONNX_BACKEND}


def is_ensemble(config: ModelConfig) -> bool:
    """Whether the model is a pipeline of others."""
    return bool(config.HasField("ensemble_scheduling")) or config.platform == ENSEMBLE


def is_tensorrt(config: ModelConfig) -> bool:
    """Whether the model is a TensorRT plan."""
    return "tensorrt" in {config.backend, _PLATFORMS.get(config.platform, "")}


def identity_rules(config: ModelConfig, directory: str) -> Iterator[Finding]:
    """Yield what is wrong with name, backend, platform and version_policy."""
    if directory and config.name not in {"", directory}:
        message = f"name is {config.name!r}, but the model's directory is {directory!r}"
        fix = f'name: "{directory}"'
        yield Finding("RG101", "error", message, f"write {fix} or rename the directory", "name", fix)
    yield from _backend(config)
    if config.HasField("model_repository_agents") and not config.model_repository_agents.agents:
        message = "model_repository_agents names no agent, which brings tritonserver 2.51 down"
        yield Finding("RG132", "error", message, "drop it", "model_repository_agents")
    for index, agent in enumerate(config.model_repository_agents.agents):
        if agent.name != "checksum":
            message = f"repository agent {agent.name!r} is none that Triton ships"
            hint = "it ships checksum; one of your own is waved through: # repogen: ignore[RG132]"
            yield Finding("RG132", "error", message, hint, f"model_repository_agents.agents[{index}]")
    for index, key in enumerate(config.metric_tags):
        if key.startswith("__") or not re.fullmatch(r"[A-Za-z0-9_]*", key):
            message = f"metric tag {key!r} is no label of Prometheus, which brings tritonserver 2.51 down"
            yield Finding(
                "RG133", "error", message, "use letters, digits and single underscores", f"metric_tags[{index}]"
            )
    yield from _version_policy(config)


def _backend(config: ModelConfig) -> Iterator[Finding]:
    if config.platform and config.platform not in _PLATFORMS:
        fix = f'backend: "{ONNX_BACKEND}"' if config.platform.startswith("onnx") else ""
        hint = f"write {fix} in place of it" if fix else "say backend in place of it"
        message = f"platform is {config.platform!r}, which Triton does not know"
        yield Finding("RG102", "error", message, hint, "platform", fix)
    elif config.platform and config.backend:
        same = _PLATFORMS[config.platform] == config.backend
        message = f"platform {config.platform!r} and backend {config.backend!r} are both set"
        message += "" if same else ", and say different things"
        fix = f'backend: "{config.backend}"'
        yield Finding("RG102", "warning" if same else "error", message, "drop platform", "platform", fix)
    elif config.platform == ONNX_PLATFORM:
        fix = f'backend: "{ONNX_BACKEND}"'
        message = f"platform {config.platform!r} is the older way to name the backend"
        yield Finding("RG102", "warning", message, f"write {fix} in place of it", "platform", fix)
    if config.backend and config.backend not in _BACKENDS:
        near = get_close_matches(config.backend.lower().strip(), sorted(_BACKENDS), n=1)
        fix = f'backend: "{near[0]}"' if near else ""
        message = f"backend {config.backend!r} is none that Triton ships"
        hint = (f"write {fix}; " if fix else "") + "one of your own is waved through: # repogen: ignore[RG102]"
        yield Finding("RG102", "error", message, hint, "backend", fix)
    if config.runtime and config.runtime not in {f"libtriton_{config.backend}.so", "model.py"}:
        message = f"runtime {config.runtime!r} is no library of the backend"
        yield Finding("RG102", "error", message, "drop it: Triton finds the library by the backend", "runtime")


def _version_policy(config: ModelConfig) -> Iterator[Finding]:
    policy = config.version_policy
    if policy.HasField("specific") and not policy.specific.versions:
        message = "version_policy is specific without versions: no version is served, and the model does not load"
        yield Finding("RG115", "error", message, "name versions, or use latest", "version_policy")
    if policy.HasField("latest") and policy.latest.num_versions == 0:
        message = "version_policy serves the latest 0 versions: no version is served, and the model does not load"
        yield Finding("RG115", "error", message, "set num_versions to 1 or more", "version_policy")
