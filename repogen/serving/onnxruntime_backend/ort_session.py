"""Creates an ONNX Runtime session with the options of a config.

Runs inside Triton's Python stub on Python 3.10-3.12. The options and their defaults follow Triton's onnxruntime_backend
(src/onnxruntime.cc, ModelState's constructor).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import graph_rules  # type: ignore[import-not-found]  # next to this file, in Triton's sys.path

if TYPE_CHECKING:
    from pathlib import Path

    from onnxruntime import InferenceSession, SessionOptions

_ORT_ERROR = re.compile(r"\[ONNXRuntimeError\] : (?P<code>\d+) : \w+ : (?P<text>.*)", re.DOTALL)


def error_text(error: Exception) -> str:
    """Return ONNX Runtime's message in the format of the C++ backend."""
    match = _ORT_ERROR.search(str(error))
    return f"onnx runtime error {match['code']}: {match['text']}" if match else f"{type(error).__name__}: {error}"


def open_session(path: Path, config: graph_rules.Config) -> InferenceSession:
    """Load the model at ``path`` on the CPU.

    Args:
        path: The ONNX file, or a directory that contains ``model.onnx``.
        config: The model's config.

    Raises:
        graph_rules.Refusal: The file is missing, an option is invalid, or ONNX Runtime rejects the model.
    """
    import onnxruntime  # noqa: PLC0415 - importable only after model.py has changed sys.path

    file = path / "model.onnx" if path.is_dir() else path
    if not file.exists():
        raise graph_rules.Refusal(f"unable to find '{file}' for model instance '{config['name']}'")
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    _set_options(options, config)
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises many classes of its binding
        raise graph_rules.Refusal(error_text(error)) from error


def graph_of(session: InferenceSession) -> graph_rules.Graph:
    """Return the signature of a loaded model.

    Raises:
        graph_rules.Refusal: An input or output is not a tensor.
    """
    inputs, outputs, initializers = (
        tuple(graph_rules.graph_tensor(node.name, node.type, node.shape) for node in nodes)
        for nodes in (session.get_inputs(), session.get_outputs(), session.get_overridable_initializers())
    )
    return graph_rules.Graph(inputs, outputs, initializers)


def _set_options(options: SessionOptions, config: graph_rules.Config) -> None:
    import onnxruntime  # noqa: PLC0415 - as above

    levels = onnxruntime.GraphOptimizationLevel
    level = config.get("optimization", {}).get("graph", {}).get("level", 0)
    options.graph_optimization_level = {
        -1: levels.ORT_ENABLE_BASIC,
        1: levels.ORT_ENABLE_EXTENDED,
        2: levels.ORT_DISABLE_ALL,
    }.get(int(level), levels.ORT_ENABLE_ALL)
    parameters = {key: value.get("string_value", "") for key, value in config.get("parameters", {}).items()}
    mode = _integer(parameters, "execution_mode")
    if mode not in (0, 1):
        raise graph_rules.Refusal(
            f"Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {mode} ."
        )
    modes = onnxruntime.ExecutionMode
    options.execution_mode = modes.ORT_PARALLEL if mode else modes.ORT_SEQUENTIAL
    options.intra_op_num_threads = max(0, _integer(parameters, "intra_op_thread_count")) or _default_threads(config)
    options.inter_op_num_threads = max(0, _integer(parameters, "inter_op_thread_count"))
    options.enable_cpu_mem_arena = _boolean(parameters, "enable_mem_arena")
    options.enable_mem_pattern = _boolean(parameters, "enable_mem_pattern")
    # Each instance is a process: threads that spin while idle would slow down the other instances.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3


def _default_threads(config: graph_rules.Config) -> int:
    """Return the threads of each instance when the config does not set them: the cores divided by the instances."""
    instances = sum(max(1, int(group.get("count", 1))) for group in config.get("instance_group", ()))
    return max(1, len(os.sched_getaffinity(0)) // max(1, instances))


def _integer(parameters: dict[str, str], key: str) -> int:
    text = parameters.get(key, "0")
    try:
        return int(text)
    except ValueError as error:
        raise graph_rules.Refusal(f"failed to convert '{text}' to integral number") from error


def _boolean(parameters: dict[str, str], key: str) -> bool:
    text = parameters.get(key, "true").lower()
    if text not in ("true", "on", "1", "false", "off", "0"):
        raise graph_rules.Refusal(f"failed to convert '{text}' to boolean value")
    return text in ("true", "on", "1")
