"""repogen: from a trained PyTorch model to a verified, versioned Triton model repository."""

__version__ = "0.1.0"
