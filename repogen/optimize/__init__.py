"""OnnxArtifact -> OnnxArtifact; a pass that makes things worse is dropped, and it is said why. Runs in the worker."""

from repogen.optimize.passes import PASSES, Pass, optimize

__all__ = ["PASSES", "Pass", "optimize"]
