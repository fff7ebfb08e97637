"""Strings as Triton carries them: arrays of objects, each of them ``bytes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Array

_TEXT = frozenset("USO")


def as_strings(array: Array) -> Array:
    r"""Return an array of text or bytes as objects that are bytes, UTF-8; any other array as it is.

    >>> as_strings(np.array(["é", "b"])).tolist()
    [b'\xc3\xa9', b'b']
    """
    if array.dtype.kind not in _TEXT:
        return array
    made = np.empty(array.shape, dtype=object)
    made.ravel()[:] = [_bytes(item) for item in array.ravel().tolist()]
    return made


def _bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
