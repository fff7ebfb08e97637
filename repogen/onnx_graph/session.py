"""ONNX Runtime sessions in repogen's own processes: on the CPU, without telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnxruntime

if TYPE_CHECKING:
    from pathlib import Path


def open_session(path: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """Load a model; errors are those of ``onnxruntime.InferenceSession``."""
    # For the whole process; not at import, because another library may turn it on later.
    onnxruntime.disable_telemetry_events()
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
