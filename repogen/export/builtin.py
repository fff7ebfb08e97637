"""The built-in exporters: which sources each accepts, and when it is tried.

Specs are validated with this module, so it imports torch only when an exporter runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.source import Eager, OnnxFile, Program, Script
from repogen.plugins import NoOptions

if TYPE_CHECKING:
    from pydantic import BaseModel

    from repogen.artifacts.source import Origin
    from repogen.export.interface import ExportedGraph, ExportRequest


class Dynamo:
    """``torch.onnx.export(dynamo=True)``, based on torch.export."""

    name = "dynamo"
    priority = 10
    options_model: type[BaseModel] = NoOptions

    def accepts(self, origin: Origin) -> bool:
        """Accept modules and programs of torch.export."""
        return isinstance(origin, (Eager, Program))

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Export; see ``repogen.export.dynamo``."""
        from repogen.export.dynamo import export_program  # noqa: PLC0415 - imports torch

        return export_program(request)


class TorchScript:
    """``torch.onnx.export(dynamo=False)``, which traces a module, or exports a TorchScript module as it is."""

    name = "torchscript"
    priority = 20
    options_model: type[BaseModel] = NoOptions

    def accepts(self, origin: Origin) -> bool:
        """Accept every PyTorch model."""
        return isinstance(origin, (Eager, Program, Script))

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Export; see ``repogen.export.torchscript``."""
        from repogen.export.torchscript import export_script, export_traced  # noqa: PLC0415 - imports torch

        return (export_script if isinstance(request.source.origin, Script) else export_traced)(request)


class TracedScript:
    """``torch.onnx.export(dynamo=False)`` of a trace of a TorchScript module."""

    name = "torchscript-traced"
    priority = 30
    options_model: type[BaseModel] = NoOptions

    def accepts(self, origin: Origin) -> bool:
        """Accept TorchScript modules."""
        return isinstance(origin, Script)

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Export; see ``repogen.export.torchscript``."""
        from repogen.export.torchscript import export_traced  # noqa: PLC0415 - imports torch

        return export_traced(request)


class DynamoEager(Dynamo):
    """Dynamo with ``scaled_dot_product_attention`` as plain operators."""

    name = "dynamo-eager"
    priority = 40

    def accepts(self, origin: Origin) -> bool:
        """Accept modules that call ``scaled_dot_product_attention``."""
        return isinstance(origin, Eager) and origin.attention

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Export; see ``repogen.export.attention``."""
        from repogen.export.attention import eager_attention  # noqa: PLC0415 - imports torch

        with eager_attention():
            return super().export(request)


class TorchScriptEager(TorchScript):
    """TorchScript with ``scaled_dot_product_attention`` as plain operators."""

    name = "torchscript-eager"
    priority = 50

    def accepts(self, origin: Origin) -> bool:
        """Accept modules that call ``scaled_dot_product_attention``."""
        return isinstance(origin, Eager) and origin.attention

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Export; see ``repogen.export.attention``."""
        from repogen.export.attention import eager_attention  # noqa: PLC0415 - imports torch

        with eager_attention():
            return super().export(request)


class OnnxPassthrough:
    """The graph of an ONNX file."""

    name = "onnx"
    priority = 10
    options_model: type[BaseModel] = NoOptions

    def accepts(self, origin: Origin) -> bool:
        """Accept ONNX files."""
        return isinstance(origin, OnnxFile)

    def export(self, request: ExportRequest) -> ExportedGraph:
        """Export; see ``repogen.export.onnx_passthrough``."""
        from repogen.export.onnx_passthrough import read_onnx  # noqa: PLC0415 - imports onnx_ir

        return read_onnx(request)
