"""A running Triton: embedded, in NVIDIA's container, or one that already runs."""
