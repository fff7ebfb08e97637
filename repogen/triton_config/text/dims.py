"""Conversions between a graph's shapes, the dims of config.pbtxt, and the shapes of requests."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.tensors import Array, Dim
    from repogen.triton_config.text.view import TensorView


def config_dims(shape: Sequence[Dim], *, batched: bool) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return ``dims`` and ``reshape`` for a tensor of the graph.

    Triton requires at least one dim. A batching model's ``[batch]`` tensor is therefore sent as ``[batch, 1]`` and
    reshaped; a 0-d tensor is sent as ``[1]`` without a reshape, because Triton's backend removes that dim itself.

    Args:
        shape: The graph's full shape, the batch included; symbolic dims by name.
        batched: Whether ``max_batch_size`` is above 0, in which case Triton adds the first dim.

    Returns:
        ``dims`` with -1 for symbolic dims, and the shape for ``reshape`` or None.

    >>> config_dims(("batch", 3, "width"), batched=True)
    ((3, -1), None)
    >>> config_dims(("batch",), batched=True)
    ((1,), ())
    >>> config_dims((), batched=False)
    ((1,), None)
    """
    dims = tuple(dim if isinstance(dim, int) else -1 for dim in shape)
    if batched:
        dims = dims[1:]
        return (dims, None) if dims else ((1,), ())
    return dims or (1,), None


def client_dims(view: TensorView, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape in which clients send or receive a tensor.

    Args:
        view: The tensor as declared in config.pbtxt.
        shape: Sizes that the model receives or returns, without the batch if the model batches.

    >>> from repogen.triton_config.text.view import TensorView
    >>> client_dims(TensorView("x", "FP32", (64, -1), (1, 64, -1)), (1, 64, 5))
    (64, 5)
    >>> client_dims(TensorView("x", "FP32", (1,)), ())
    (1,)

    Raises:
        ValueError: The shape does not match the declaration.
    """
    if view.reshape is None:
        return tuple(shape) or (1,) * len(view.dims)
    sizes = [size for size, dim in zip(shape, view.reshape, strict=True) if dim == -1]
    if len(sizes) != view.dims.count(-1):
        raise ValueError(f"the dims {view.dims} and the reshape {view.reshape} differ in variable dims")
    remaining = iter(sizes)
    return tuple(next(remaining) if dim == -1 else dim for dim in view.dims)


def wire_shape(shape: Sequence[int], *, batched: bool) -> tuple[int, ...]:
    """Return the shape in which a client sends or receives an array that has ``shape`` in the model.

    >>> wire_shape((4,), batched=True)
    (4, 1)
    >>> wire_shape((), batched=False)
    (1,)
    """
    if batched:
        return (shape[0], 1) if len(shape) == 1 else tuple(shape)
    return tuple(shape) or (1,)


def wire_array(array: Array, *, batched: bool) -> Array:
    """Return ``array`` in the shape in which a client sends or receives it."""
    return array.reshape(wire_shape(array.shape, batched=batched))


def same_elements(dims: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether two shapes have equal numbers of elements, also between their variable dims (-1).

    >>> same_elements((2, -1, 3), (2, -1, 3)), same_elements((6, -1), (2, 3, -1)), same_elements((2, -1), (-1, 2))
    (True, True, False)
    """
    return _parts(dims) == _parts(shape)


def _parts(dims: tuple[int, ...]) -> list[int]:
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]
