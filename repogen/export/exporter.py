"""The interface of an exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    import torch

    from repogen.artifacts.source import SourceModel


class Exporter(Protocol):
    """A way to make an ONNX graph of a module."""

    name: str

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Export, or raise ExportError."""
