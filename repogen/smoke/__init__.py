"""StagedVersion + Triton -> SmokeReport: inference over gRPC against the golden tensors, on the staged bytes."""

from repogen.smoke.inference import NoAnswerError, RefusedError
from repogen.smoke.predict import Address, Predictor
from repogen.smoke.report import raise_for_failures
from repogen.smoke.repository import smoke_repository
from repogen.smoke.served import ServedVersion, serving
from repogen.smoke.staged import smoke_staged

__all__ = [
    "Address",
    "NoAnswerError",
    "Predictor",
    "RefusedError",
    "ServedVersion",
    "raise_for_failures",
    "serving",
    "smoke_repository",
    "smoke_staged",
]
