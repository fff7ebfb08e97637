"""ONNX Runtime's own graph optimizations, written to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnxruntime

from repogen.onnx_graph.session import open_session

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact

LEVELS = ("basic", "extended")
"""Levels whose result does not depend on the instruction set of this machine, unlike that of layout optimizations."""


def write_optimized(artifact: OnnxArtifact, level: str, directory: Path) -> Path:
    """Write the graph as ONNX Runtime optimizes it on the CPU; return the file.

    Args:
        artifact: The model.
        level: One of ``LEVELS``.
        directory: Existing directory; its weights go to a second file there.
    """
    path = directory / f"{level}.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", f"{level}.data")
    open_session(artifact.path, options)
    return path


def runtime_nodes(artifact: OnnxArtifact, directory: Path) -> int:
    """Return the number of top-level nodes of the graph after ONNX Runtime's own optimizations on the CPU.

    Args:
        artifact: The model.
        directory: Directory for temporary files.
    """
    optimized = write_optimized(artifact, "extended", directory)
    nodes = len(onnx.load(optimized, load_external_data=False).graph.node)
    for path in (optimized, optimized.with_suffix(".data")):
        path.unlink(missing_ok=True)
    return nodes
