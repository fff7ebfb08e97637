"""Smoke tests: loads models into a running Triton server, and compares its outputs with golden tensors over gRPC."""
