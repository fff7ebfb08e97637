"""The error of a model that disagrees with its original; a worker imports it before it imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import ParityError

if TYPE_CHECKING:
    from repogen.artifacts.built_model import ParityReport


class DriftError(ParityError):
    """The published model disagrees with the original (exit 4).

    Attributes:
        parity: Every case; None if the error comes from another process.
    """

    parity: ParityReport | None = None
