"""Calibration data: an ``.npz`` file, or the user's callable, as batches of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError
from repogen.files.content import ContentError
from repogen.files.npz import read_npz
from repogen.source.common.callables import RAISED, import_callable, user_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.tensors import Array, Signature, TensorSpec

Batches: TypeAlias = "Iterator[dict[str, Array]]"

CODE = "source.calibration"
_ROWS = 8
"""Rows of a batch that is made of the rows of a file."""


def calibration_batches(reference: str, root: Path, signature: Signature) -> Batches:
    """Yield batches of inputs.

    Args:
        reference: An ``.npz`` file with one array per input, whose rows are split into batches, or
            ``file.py:callable``: a function without arguments that returns an iterable of inputs by name.
        root: Directory that it is relative to.
        signature: The inputs of the graph.

    Raises:
        SourceError: The data cannot be read, are empty, or do not match the inputs.
    """
    raw = _called(reference, root) if ":" in reference else _file(reference, root, signature)
    number = 0
    for number, batch in enumerate(raw, 1):
        yield _checked(batch, signature, f"batch {number} of {reference}")
    if not number:
        raise SourceError(f"{reference} has no calibration data", code=CODE)


def _called(reference: str, root: Path) -> Iterator[object]:
    function = import_callable(reference, root)
    try:
        yield from function()  # type: ignore[misc] # not an iterable: the TypeError is the user's
    except RAISED as error:
        raise user_error(error, f"{reference} failed", root, CODE) from error


def _file(reference: str, root: Path, signature: Signature) -> Iterator[Mapping[str, Array]]:
    """Yield the rows of a file in batches of the graph's size, or of a few rows if that is dynamic."""
    try:
        arrays = read_npz(root / reference)
    except (ContentError, OSError) as error:
        raise SourceError(f"{reference} {error}", code=CODE, where=reference) from error
    missing = [spec.name for spec in signature.inputs if spec.name not in arrays]
    if missing:
        names = ", ".join(sorted(arrays)) or "none"
        raise SourceError(f"{reference} has no array {missing[0]!r}; it has {names}", code=CODE, where=reference)
    inputs = {spec.name: arrays[spec.name] for spec in signature.inputs}
    sizes = {spec.shape[0] if spec.shape else 1 for spec in signature.inputs}
    lengths = {len(array) if array.ndim else 0 for array in inputs.values()}
    if len(lengths) != 1 or 0 in lengths or len(sizes) != 1:
        yield inputs  # axis 0 is not a batch
        return
    (size,), (length,) = sizes, lengths
    rows = size if isinstance(size, int) else _ROWS
    for start in range(0, length - (length % rows if isinstance(size, int) else 0), rows):
        yield {name: array[start : start + rows] for name, array in inputs.items()}


def _checked(batch: object, signature: Signature, where: str) -> dict[str, Array]:
    """Return the inputs of a batch, with the dtypes of the graph."""
    if not isinstance(batch, dict):
        raise SourceError(f"{where} is a {type(batch).__name__}, not a dict that maps input names to arrays", code=CODE)
    missing = [spec.name for spec in signature.inputs if spec.name not in batch]
    if missing:
        raise SourceError(f"{where} has no input {missing[0]!r}", code=CODE)
    return {spec.name: _array(batch[spec.name], spec, where) for spec in signature.inputs}


def _array(value: object, spec: TensorSpec, where: str) -> Array:
    array, dtype = np.asarray(value), np.dtype(DTYPES[spec.dtype].numpy)
    if array.ndim != len(spec.shape) or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise SourceError(
            f"{where}: input {spec.name!r} is {array.dtype} {list(array.shape)}, the model accepts {spec.dtype} "
            f"{list(spec.shape)}",
            code=CODE,
        )
    return array.astype(dtype)
