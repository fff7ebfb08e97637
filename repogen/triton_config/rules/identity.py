"""Rules for name, backend, repository agents, metric tags and version_policy."""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from repogen.errors import ConfigError
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.parse import quoted
from repogen.triton_config.text.source_map import entry_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.triton_config.rules.findings import Severity

ONNX_PLATFORM = "onnxruntime_onnx"
ONNX_BACKEND = "onnxruntime"
ENSEMBLE = "ensemble"
# Included in NVIDIA's containers. Source: triton-inference-server/backend, "Where can I find all the backends".
_BACKENDS = frozenset({
    "onnxruntime", "python", "pytorch", "tensorrt", "tensorflow", "openvino", "dali", "fil", "identity", "vllm",
    "tensorrtllm", "repeat", "square",
})  # fmt: skip
# Backends of the containers that are a model.py in their directory, or have one next to their library.
_PYTHON_BASED = frozenset({"pytorch", "tensorrtllm", "vllm"})
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "pytorch_libtorch": "pytorch",
    "ensemble": "",
}


def is_onnx(config: ModelConfig) -> bool:
    """Return whether Triton uses its ONNX Runtime backend; without a backend, the model's file decides."""
    if is_ensemble(config):
        return False
    backend = config.backend or _PLATFORMS.get(config.platform, config.platform)
    return backend in {"", ONNX_BACKEND}


def is_ensemble(config: ModelConfig) -> bool:
    """Return whether the model is an ensemble."""
    return bool(config.HasField("ensemble_scheduling")) or config.platform == ENSEMBLE


def is_tensorrt(config: ModelConfig) -> bool:
    """Return whether the model is a TensorRT plan."""
    return "tensorrt" in {config.backend, _PLATFORMS.get(config.platform, "")}


def identity_findings(config: ModelConfig, directory: str) -> Iterator[Finding]:
    """Yield the violations in name, backend, repository agents, metric tags and version_policy."""
    if directory and config.name not in {"", directory}:
        message = f"name is {config.name!r}, but the model's directory is {directory!r}"
        fix = ""
        with suppress(ConfigError):  # the directory's name is not UTF-8
            fix = f"name: {quoted(directory)}"
        hint = f"write {fix}, or rename the directory" if fix else "rename the directory"
        yield Finding("RG101", "error", message, hint, "name", fix)
    yield from _platform_findings(config)
    yield from _backend_findings(config)
    yield from _agent_findings(config)
    for key in sorted(config.metric_tags):
        # Triton puts an underscore before the key; labels that start with two are reserved
        if key.startswith("_") or not re.fullmatch(r"[A-Za-z0-9_]*", key):
            message = f"metric tag {key!r} is not a valid Prometheus label, which crashes tritonserver 2.51"
            hint = "use letters, digits and underscores, and begin with a letter or a digit"
            yield Finding("RG133", "error", message, hint, entry_path("metric_tags", key))
    yield from _version_policy_findings(config)


def _platform_findings(config: ModelConfig) -> Iterator[Finding]:
    if config.platform and config.platform not in _PLATFORMS:
        fix = f'backend: "{ONNX_BACKEND}"' if config.platform.startswith("onnx") else ""
        message = f"platform {config.platform!r} is not supported by Triton"
        yield Finding("RG102", "error", message, f"write {fix or 'backend'} instead", "platform", fix)
    elif config.platform and config.backend:
        same_backend = _PLATFORMS[config.platform] == config.backend
        message = f"platform {config.platform!r} and backend {config.backend!r} are both set"
        message += "" if same_backend else " and conflict"
        # the finding about an unknown backend has its correction
        fix = f"backend: {quoted(config.backend)}" if config.backend in _BACKENDS else ""
        severity: Severity = "warning" if same_backend else "error"
        yield Finding("RG102", severity, message, "remove platform", "platform", fix, guess=not same_backend)
    elif config.platform == ONNX_PLATFORM:
        fix = f'backend: "{ONNX_BACKEND}"'
        message = f"platform {config.platform!r} is the older name of the backend"
        yield Finding("RG102", "warning", message, f"write {fix} instead", "platform", fix)


def _backend_findings(config: ModelConfig) -> Iterator[Finding]:
    if config.backend and config.backend not in _BACKENDS:
        closest = get_close_matches(config.backend.lower().strip(), sorted(_BACKENDS), n=1)
        fix = f'backend: "{closest[0]}"' if closest else ""
        message = f"backend {config.backend!r} is not included in Triton"
        hint = (f"write {fix}; " if fix else "") + "to allow a custom backend: # repogen: ignore[RG102]"
        yield Finding("RG102", "error", message, hint, "backend", fix, guess=True)
    if config.runtime and not is_ensemble(config) and config.runtime not in _runtimes(config):
        message = f"runtime {config.runtime!r} is not a library of the backend"
        yield Finding("RG102", "error", message, "remove it: Triton derives the library from the backend", "runtime")


def _runtimes(config: ModelConfig) -> set[str]:
    """Return the libraries that the backend of a config has; a platform names a backend as well."""
    backend = config.backend or _PLATFORMS.get(config.platform, "") or ONNX_BACKEND
    may_be_python = backend in _PYTHON_BASED or backend not in _BACKENDS
    return {f"libtriton_{backend}.so", *(["model.py"] if may_be_python else [])}


def _agent_findings(config: ModelConfig) -> Iterator[Finding]:
    if config.HasField("model_repository_agents") and not config.model_repository_agents.agents:
        message = "model_repository_agents has no agent, which crashes tritonserver 2.51"
        yield Finding("RG132", "error", message, "remove it", "model_repository_agents")
    for index, agent in enumerate(config.model_repository_agents.agents):
        if agent.name != "checksum":
            message = f"repository agent {agent.name!r} is not included in Triton"
            hint = "Triton includes checksum; to allow a custom agent: # repogen: ignore[RG132]"
            yield Finding("RG132", "error", message, hint, f"model_repository_agents.agents[{index}]")


def _version_policy_findings(config: ModelConfig) -> Iterator[Finding]:
    policy = config.version_policy
    if policy.HasField("specific") and not policy.specific.versions:
        message = "version_policy is specific without versions: no version is served, and the model does not load"
        yield Finding("RG115", "error", message, "list versions, or use latest", "version_policy.specific")
    if policy.HasField("latest") and policy.latest.num_versions == 0:
        message = "version_policy serves the latest 0 versions: no version is served, and the model does not load"
        yield Finding("RG115", "error", message, "set num_versions to 1 or more", "version_policy")
