"""What a Triton would refuse, die of, or accept to a user's surprise, in any model repository; needs no server.

Nothing is imported that serves or trains: no torch, no ONNX Runtime, no MLflow.
"""

from repogen.checking.check import Selection, check

__all__ = ["Selection", "check"]
