"""publish: a staged version becomes the repository's next one, whole or not at all."""

from repogen.publish.recovery import recover
from repogen.publish.version import publish

__all__ = ["publish", "recover"]
