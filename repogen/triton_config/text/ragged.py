"""How Triton forms a ragged batch: the inputs that it derives from the requests, and the parts of a scattered output.

A copy runs in the embedded Triton's backend, on Python 3.10-3.12, so this module imports only NumPy. It follows
``BackendInputCollector::ProcessBatchInput`` and ``BackendOutputResponder::ProcessBatchOutput`` of Triton's backend
library (triton-inference-server/backend).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.generic]
    Shape = Sequence[int]

PER_REQUEST = frozenset({
    "BATCH_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
})  # fmt: skip
"""Kinds of batch_input with one value for each request, not for each row."""


def batch_input(kind: str, shapes: Sequence[Shape], dtype: str) -> Array:
    """Return an input that Triton derives from the requests of a batch.

    Args:
        kind: The kind of ``batch_input``.
        shapes: Full shape of the source input in each request, the batch included.
        dtype: NumPy's name of its data type: ``int32`` or ``float32``.

    Raises:
        ValueError: Triton has no such kind.

    >>> batch_input("BATCH_ELEMENT_COUNT", [(1, 3), (1, 2)], "int32").tolist()
    [3, 2]
    >>> batch_input("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [(1, 3), (1, 2)], "int32").tolist()
    [0, 3, 5]
    >>> batch_input("BATCH_ITEM_SHAPE", [(2, 3), (1, 2)], "int32").tolist()
    [[3], [3], [2]]
    """
    counts = [prod(shape) for shape in shapes]
    rows = [tuple(shape[1:]) for shape in shapes for _ in range(shape[0])]
    values: object
    if kind == "BATCH_ELEMENT_COUNT":
        values = counts
    elif kind == "BATCH_ACCUMULATED_ELEMENT_COUNT":
        values = np.cumsum(counts)
    elif kind == "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO":
        values = np.cumsum([0, *counts])
    elif kind == "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE":  # only its shape has a meaning
        values = np.zeros(max(counts))
    elif kind == "BATCH_ITEM_SHAPE":
        values = np.reshape(rows, (len(rows), len(shapes[-1]) - 1))
    elif kind == "BATCH_ITEM_SHAPE_FLATTEN":
        values = np.reshape(rows, -1)
    else:
        raise ValueError(f"unexpected batch input kind '{kind}'")
    return np.asarray(values).astype(dtype)


def scattered(array: Array, dims: Shape, shapes: Sequence[Shape]) -> list[Array]:
    """Split an output with BATCH_SCATTER_WITH_INPUT_SHAPE into the outputs of the requests.

    Each request gets the next elements of the output. Its shape is ``dims``, where every -1 is replaced by the size of
    the same axis in the request's source input.

    Args:
        array: The output of the whole batch.
        dims: Dims of the output in config.pbtxt, after ``reshape``, and -1 for the batch if the model batches.
        shapes: Full shape of the source input in each request.

    Raises:
        ValueError: An axis is missing in the source input, or the output is too small. NVIDIA's backend then reads
            memory that belongs to something else.

    >>> [part.tolist() for part in scattered(np.arange(5), (-1, -1), [(1, 3), (1, 2)])]
    [[[0, 1, 2]], [[3, 4]]]
    """
    parts, offset, flat = [], 0, array.reshape(-1)
    for shape in shapes:
        if len(dims) > len(shape) and -1 in dims[len(shape) :]:
            raise ValueError(f"the output has dims {list(dims)}, and its source input has the shape {list(shape)}")
        part_shape = [shape[axis] if dim == -1 else dim for axis, dim in enumerate(dims)]
        size = prod(part_shape)
        if offset + size > flat.size:
            raise ValueError(
                f"the output has {flat.size} elements, and its dims {list(dims)} require {offset + size} or more"
            )
        parts.append(np.ascontiguousarray(flat[offset : offset + size]).reshape(part_shape))
        offset += size
    return parts
