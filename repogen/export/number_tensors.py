"""Tensors of numbers that depend on sizes, such as ``torch.tensor([height, width])``, which exporters freeze."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def traced_numbers() -> Iterator[None]:
    """Keep the sizes in new tensors dynamic in a trace, where sizes are tensors.

    This applies to lists that ``torch.tensor``, ``torch.as_tensor`` and ``Tensor.new_tensor`` receive. torch.export
    recognizes ``torch.tensor`` itself, so the function must not be replaced for it.
    """
    names = [(torch, "tensor"), (torch, "as_tensor"), (Tensor, "new_tensor")]
    originals: list[tuple[Any, str, Any]] = [(owner, name, getattr(owner, name)) for owner, name in names]
    for owner, name, original in originals:
        setattr(owner, name, partial(_create, original) if owner is torch else _create_like(original))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def exported_numbers(convert: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return ``torch.as_tensor`` that keeps sizes dynamic for torch.export, as ``torch.tensor`` does."""

    def dynamic(data: Any, dtype: Any = None, device: Any = None) -> Tensor:  # noqa: ANN401 - as torch.as_tensor
        is_dynamic = any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in _leaves(data))
        return (torch.tensor if is_dynamic else convert)(data, dtype=dtype, device=device)

    return dynamic


def _create(original: Callable[..., Tensor], data: Any, *args: Any, **options: Any) -> Tensor:  # noqa: ANN401
    stacked = _stacked(data, args[0] if args else options.get("dtype"))
    return original(data, *args, **options) if stacked is None else stacked


def _create_like(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a method, which a ``partial`` cannot be."""

    def create(self: Tensor, data: Any, **options: Any) -> Tensor:  # noqa: ANN401 - as Tensor.new_tensor
        stacked = _stacked(data, options.get("dtype") or self.dtype)
        return original(self, data, **options) if stacked is None else stacked

    return create


def _stacked(data: object, dtype: torch.dtype | None) -> Tensor | None:
    """Return a list with scalars of a trace as a tensor that the trace follows; None for other data."""
    is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call] # as torch declares it
    leaves = list(_leaves(data)) if is_traced else []
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not tensors or any(leaf.ndim for leaf in tensors):
        return None
    return _stack(data, dtype or _common_dtype(leaves))


def _stack(data: Any, dtype: torch.dtype) -> Tensor:  # noqa: ANN401 - a nested list
    if isinstance(data, (list, tuple)):
        return torch.stack([_stack(child, dtype) for child in data])
    return data.to(dtype) if isinstance(data, Tensor) else torch.full((), data, dtype=dtype)


def _leaves(data: object) -> Iterator[object]:
    if not isinstance(data, (list, tuple)):
        return
    for child in data:
        if isinstance(child, (list, tuple)):
            yield from _leaves(child)
        else:
            yield child


def _common_dtype(leaves: list[object]) -> torch.dtype:
    """Return the dtype that ``torch.tensor`` gives a list of numbers and scalars."""
    kinds = {leaf.dtype if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves}
    if any(kind is float or (isinstance(kind, torch.dtype) and kind.is_floating_point) for kind in kinds):
        return torch.get_default_dtype()
    return torch.bool if kinds <= {bool, torch.bool} else torch.int64
