"""OnnxArtifact -> structure check, ParityReport, BatchReport and golden tensors; runs in the worker."""
