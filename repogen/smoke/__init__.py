"""StagedVersion + Triton -> SmokeReport: inference over gRPC against the golden tensors, on the staged bytes."""

from repogen.smoke.report import raise_for_failures
from repogen.smoke.repository import smoke_repository
from repogen.smoke.staged import smoke_staged

__all__ = ["raise_for_failures", "smoke_repository", "smoke_staged"]
