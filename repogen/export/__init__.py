"""SourceModel -> OnnxArtifact: the exporters, and the order in which the worker tries them."""
