"""How many nodes ONNX Runtime executes, after its own optimizations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnxruntime

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact


def runtime_nodes(artifact: OnnxArtifact, directory: Path) -> int:
    """Return the number of top-level nodes of the graph as ONNX Runtime optimizes it on the CPU.

    Args:
        artifact: The model.
        directory: Where the optimized graph is written, and removed again.
    """
    written = directory / "runtime.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Extended, not all: layout optimizations depend on the machine's instruction set.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(written)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "runtime.data")
    onnxruntime.InferenceSession(artifact.path, options, providers=["CPUExecutionProvider"])
    nodes = len(onnx.load(written, load_external_data=False).graph.node)
    for path in (written, directory / "runtime.data"):
        path.unlink(missing_ok=True)
    return nodes
