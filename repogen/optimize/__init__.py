"""OnnxArtifact -> OnnxArtifact: optimization passes; a pass whose result fails a check is dropped, with the reason."""
