"""Runs a Triton server: embedded, in NVIDIA's container, a plug-in's, or one that already runs."""
