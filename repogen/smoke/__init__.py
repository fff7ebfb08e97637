"""Smoke tests: loads models into a running Triton and compares its outputs with the golden tensors, over gRPC."""
