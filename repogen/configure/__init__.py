"""Artifact + spec -> ModelConfig: meant, rendered, parsed back, compared, and checked against graph and neighbors."""

from repogen.configure.build import configure
from repogen.configure.ensemble import configure_ensemble

__all__ = ["configure", "configure_ensemble"]
