"""The Python-based backend that the embedded Triton runs: package data, copied into Triton's backend directory."""
