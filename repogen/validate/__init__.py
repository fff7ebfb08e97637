"""OnnxArtifact -> StructureReport, ParityReport, BatchReport, golden tensors. Runs in the worker."""

from repogen.validate.validation import Validation, prove, validate

__all__ = ["Validation", "prove", "validate"]
