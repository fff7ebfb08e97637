"""The version of repogen, and nothing else: every package may import it."""

__version__ = "0.1.0"
