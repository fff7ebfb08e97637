"""OnnxArtifact -> StructureReport, ParityReport, BatchReport, golden tensors. Runs in the worker."""
