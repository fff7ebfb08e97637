"""`repogen sync`: a Triton repository follows an alias of a registry."""

from repogen.syncing.sync import sync

__all__ = ["sync"]
