"""``kind: python``: runs code for Triton's Python backend without Triton, to verify what it returns."""
