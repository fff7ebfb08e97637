"""A file that config.pbtxt names, called by its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class NamedFile:
    """A file that the config names.

    Attributes:
        name: Its kind and the first 8 digits of its sha256: ``labels-0123abcd.txt``, ``warmup-0123abcd.bin``.
        content: Its bytes.
    """

    name: str
    content: bytes


def label_file(labels: Sequence[str]) -> NamedFile:
    """Return the file that holds names of classes, one a line, in the order of the output's last axis."""
    content = "".join(f"{label}\n" for label in labels).encode()
    return NamedFile(f"labels-{hashlib.sha256(content).hexdigest()[:8]}.txt", content)


def data_file(kind: Literal["warmup", "state"], content: bytes) -> NamedFile:
    """Return the file that holds the raw values of a warmup's input, or of a sequence's first state."""
    return NamedFile(f"{kind}-{hashlib.sha256(content).hexdigest()[:8]}.bin", content)
