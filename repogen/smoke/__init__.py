"""StagedVersion + Triton -> SmokeReport: inference over gRPC against the golden tensors, on the staged bytes."""
