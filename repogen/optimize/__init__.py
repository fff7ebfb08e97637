"""OnnxArtifact -> OnnxArtifact; a pass that makes things worse is dropped, and it is said why. Runs in the worker."""
