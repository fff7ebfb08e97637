"""OnnxArtifact + spec -> ModelConfig: meant, rendered, parsed back, compared, and checked against the graph."""

from repogen.configure.build import configure

__all__ = ["configure"]
