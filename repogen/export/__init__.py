"""SourceModel -> OnnxArtifact: dynamo, then TorchScript. Runs in the worker, which decides when to fall back."""
