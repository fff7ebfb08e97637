"""SourceModel -> OnnxArtifact: dynamo, then TorchScript. Runs in the worker, which decides when to fall back."""

from repogen.export.ladder import Exporter, export_with, exporters

__all__ = ["Exporter", "export_with", "exporters"]
