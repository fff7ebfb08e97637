"""What each kind of source offers an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_ir.passes.common import RemoveUnusedNodesPass

from repogen.artifacts.source import Eager, OnnxFile, Origin, PassThroughSource, Program, Script
from repogen.errors import ExportError

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch


def traceable(origin: Origin) -> torch.nn.Module:
    """Return the module with flat tensors in and out.

    Raises:
        ExportError: There is none: the source is a graph already.
    """
    match origin:
        case Eager() | Program():
            return origin.module
        case Script():
            return origin.traced
        case OnnxFile() | PassThroughSource():
            raise ExportError("there is no PyTorch module to export", code="export.exporter")


def keep_outputs(model: ir.Model, select: tuple[int, ...]) -> ir.Model:
    """Keep only some outputs of a graph, in the given order, and what they need."""
    outputs = list(model.graph.outputs)
    if select != tuple(range(len(outputs))):
        model.graph.outputs[:] = [outputs[index] for index in select]
        RemoveUnusedNodesPass()(model)
    return model
