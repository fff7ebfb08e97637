"""Batchability by experiment: Triton puts rows of strangers into one batch, and takes it apart along axis 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.built_model import BatchReport
from repogen.artifacts.source import PassThroughSource
from repogen.errors import ConfigError, RepogenError
from repogen.validate.compare import difference, not_finite

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array, Arrays

_SIZES = (1, 2, 3, 5)
_SEEDS = 20
_LOOKED_AT = 8
"""Rows of a large batch that are also answered alone."""
_LOUDER = 10.0
"""What drawn values are multiplied by once more: some models mix rows only where values are large."""


def check_batch(
    source: SourceModel,
    published: Callable[[Arrays], dict[str, Array]],
    asked: int | Literal["auto"],
    allowed: dict[str, tuple[float, float]],
    seed: int,
) -> BatchReport:
    """Decide max_batch_size: what was asked for if the model batches; 0 for ``auto`` if it does not.

    Args:
        source: The PyTorch model.
        published: What is published, the ONNX model, on which everything is measured again.
        asked: ``triton.max_batch_size`` of the spec.
        allowed: (rtol, atol) by output.
        seed: Seed of the inputs.

    Raises:
        ConfigError: max_batch_size above 0 was asked for, and the model does not batch; exit code 5.
    """
    if asked == 0:
        return BatchReport(batchable=False, max_batch_size=0, reason="max_batch_size: 0 was asked for")
    most = source.dims[source.signature.batch_dim].max if source.signature.batch_dim else 0
    proved = most if asked == "auto" else min(asked, most)
    reason = _refusal(source, seed, allowed, published, proved)
    if not reason:
        dim = source.signature.batch_dim or ""
        if asked != "auto" and asked > most:
            raise ConfigError(
                f"max_batch_size: {asked} was asked for, but dim {dim!r} is proved up to {most} only",
                f"raise dims.{dim}.max to {asked}, or lower max_batch_size",
                code="config.batch-above-dim",
            )
        return BatchReport(batchable=True, max_batch_size=most if asked == "auto" else asked)
    if asked == "auto":
        return BatchReport(batchable=False, max_batch_size=0, reason=reason)
    raise ConfigError(
        f"max_batch_size: {asked} was asked for, but the model does not batch: {reason}",
        "set max_batch_size: 0 (or auto) and drop dynamic_batching, or have the model answer each row by itself",
        code="config.not-batchable",
    )


def _refusal(
    source: SourceModel,
    seed: int,
    allowed: dict[str, tuple[float, float]],
    published: Callable[[Arrays], dict[str, Array]],
    most: int,
) -> str:
    """Return why the model does not batch; empty when it does, up to ``most`` rows."""
    dim = source.signature.batch_dim
    if dim is None:
        return "axis 0 of its inputs is not one shared dynamic dim"
    limits = source.dims[dim]
    if reason := _unfit(source, dim):
        return reason
    sizes = [size for size in _SIZES if size <= limits.max]
    inputs = _telling_inputs(source, dim, sizes[-1], seed)
    if inputs is None:
        return "the rows of its example inputs are all the same, so nothing can show whether it mixes them"
    # Between five rows and all of them a model may begin to mix: an expert that takes so many rows and no more.
    large = [size for size in (most // 2, most) if size > sizes[-1]]
    batches = [source.examples({**source.example_sizes, dim: size}, seed) for size in large]
    code = source.origin if isinstance(source.origin, PassThroughSource) else None
    names = (code.original, code.served) if code else ("PyTorch", "ONNX Runtime")
    for model, runtime in zip((source.reference, published), names, strict=True):
        reason = _tried(model, inputs, sizes, allowed) or _tried_louder(model, inputs, allowed)
        for batch in batches:
            reason = reason or _mixes_many(model, batch, allowed)
        if reason:
            return f"{reason} ({runtime})"
    return ""


def _tried(
    model: Callable[[Arrays], dict[str, Array]],
    inputs: Arrays,
    sizes: list[int],
    allowed: dict[str, tuple[float, float]],
) -> str:
    """Return what goes wrong when ``model`` answers batches of the first rows; empty when nothing does."""
    alone: list[dict[str, Array]] = []
    for size in sizes:
        try:
            reason = _mixes(model, _rows(inputs, slice(size)), alone, allowed)
        except RepogenError as error:
            reason = f"a batch of {size} fails: {error.message}"
        if reason:
            return reason
    return _minds_order(model, inputs, alone, allowed)


def _tried_louder(
    model: Callable[[Arrays], dict[str, Array]], inputs: Arrays, allowed: dict[str, tuple[float, float]]
) -> str:
    """Return how ``model`` mixes rows of large values; empty where it does not, or can't compute with them."""
    floats = {name for name, array in inputs.items() if array.dtype.kind == "f"}
    loud: dict[str, Array] = {
        name: np.multiply(array, _LOUDER, dtype=array.dtype) if name in floats else array
        for name, array in inputs.items()
    }
    louder = {name: (rtol, atol * _LOUDER) for name, (rtol, atol) in allowed.items()}
    try:
        return _mixes_many(model, loud, louder) if floats and not not_finite(model(loud)) else ""
    except RepogenError:  # values that it was not made for
        return ""


def _mixes_many(
    model: Callable[[Arrays], dict[str, Array]], inputs: Arrays, allowed: dict[str, tuple[float, float]]
) -> str:
    """Return how ``model`` mixes the rows of a batch, of which some are looked at; empty when it does not."""
    size = len(next(iter(inputs.values())))
    looked_at = sorted({round(i * (size - 1) / (_LOOKED_AT - 1)) for i in range(_LOOKED_AT)})
    try:
        together, turned = model(inputs), model(_rows(inputs, slice(None, None, -1)))
        alone = [model(_rows(inputs, slice(i, i + 1))) for i in looked_at]
    except RepogenError as error:
        return f"a batch of {size} fails: {error.message}"
    seen = {name: array[looked_at] for name, array in together.items()}
    joined = {name: np.concatenate([row[name] for row in alone]) for name in together}
    if reason := difference(joined, seen, allowed).reason:
        return f"a row alone is answered otherwise than in a batch of {size}: {reason}"
    reason = difference(together, {name: array[::-1] for name, array in turned.items()}, allowed).reason
    return f"rows in another order are answered otherwise in a batch of {size}: {reason}" if reason else ""


def _unfit(source: SourceModel, dim: str) -> str:
    """Return why ``dim`` cannot be a batch; empty when it can."""
    limits = source.dims[dim]
    if limits.min > 1:
        return f"dim {dim!r} starts at {limits.min}, and Triton also sends batches of 1"
    for spec in source.signature.inputs:
        if dim in spec.shape[1:]:
            return f"dim {dim!r} is another axis of input {spec.name!r} too, and Triton joins axis 0 alone"
    return ""


def _telling_inputs(source: SourceModel, dim: str, size: int, seed: int) -> dict[str, Array] | None:
    """Return a batch whose rows differ, from the first of a few seeds that gives one; None when none does."""
    for attempt in range(seed, seed + _SEEDS):
        inputs = source.examples({**source.example_sizes, dim: size}, attempt)
        if any(not np.array_equal(array[:1], array[1:2]) for array in inputs.values()):
            return inputs
    return None


def _rows(inputs: Arrays, chosen: slice) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array[chosen]) for name, array in inputs.items()}


def _mixes(
    model: Callable[[Arrays], dict[str, Array]],
    inputs: Arrays,
    alone: list[dict[str, Array]],
    allowed: dict[str, tuple[float, float]],
) -> str:
    """Return how ``model`` mixes the rows of a batch; empty when it does not.

    Args:
        model: PyTorch's or ONNX Runtime's.
        inputs: The batch.
        alone: Answers to the first rows by themselves; those that are missing are added.
        allowed: (rtol, atol) by output.
    """
    size = len(next(iter(inputs.values())))
    together = model(inputs)
    for name, array in together.items():
        if array.ndim == 0 or array.shape[0] != size:
            return f"output {name!r} has shape {list(array.shape)} for a batch of {size}: axis 0 is not the batch"
    alone += [model(_rows(inputs, slice(i, i + 1))) for i in range(len(alone), size)]
    for name in together:
        if any(row[name].shape != (1, *together[name].shape[1:]) for row in alone):
            return f"output {name!r} of one row alone has another shape than in a batch of {size}"
    joined = {name: np.concatenate([row[name] for row in alone]) for name in together}
    apart = difference(joined, together, allowed)
    return f"a row alone is answered otherwise than in a batch of {size}: {apart.reason}" if apart.reason else ""


def _minds_order(
    model: Callable[[Arrays], dict[str, Array]],
    inputs: Arrays,
    alone: list[dict[str, Array]],
    allowed: dict[str, tuple[float, float]],
) -> str:
    """Return how ``model`` answers the rows otherwise when they come in another order; empty when it does not."""
    turned = model(_rows(inputs, slice(None, None, -1)))
    expected = {name: np.concatenate([row[name] for row in reversed(alone)]) for name in turned}
    apart = difference(expected, turned, allowed)
    return f"rows in another order are answered otherwise: {apart.reason}" if apart.reason else ""
