"""``kind: python``: code for Triton's Python backend."""
