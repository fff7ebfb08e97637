"""Attention in plain operators, for exporters that translate the fused operator wrongly or not at all."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def eager_attention() -> Iterator[None]:
    """Replace ``torch.nn.functional.scaled_dot_product_attention`` while the block runs."""
    fused = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = fused


def _without_hidden(result: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return zeros for the queries whose keys are all hidden."""
    if mask is None:
        return result
    is_visible = mask if mask.dtype == torch.bool else mask > -torch.inf
    return torch.where(is_visible.any(-1, keepdim=True), result, torch.zeros((), dtype=result.dtype))


def attend(  # noqa: PLR0913, PLR0917 - PyTorch's signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001 - unused in evaluation mode
    is_causal: bool = False,  # noqa: FBT001, FBT002 - PyTorch's signature
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - PyTorch's signature
) -> torch.Tensor:
    """Return the result of ``scaled_dot_product_attention``, computed as its documentation specifies.

    Args:
        query: ``[…, heads, L, E]``.
        key: ``[…, key heads, S, E]``.
        value: ``[…, key heads, S, Ev]``.
        attn_mask: Broadcastable to ``[…, heads, L, S]``; boolean (True keeps the key) or added to the scores.
        dropout_p: Ignored.
        is_causal: Whether position ``i`` attends only to keys up to ``i``.
        scale: Factor of the scores; ``1 / sqrt(E)`` when None.
        enable_gqa: Whether several query heads share a key head.

    Returns:
        ``[…, heads, L, Ev]``.
    """
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    lowest = torch.finfo(scores.dtype).min
    if is_causal:
        visible = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~visible, lowest)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, lowest) if attn_mask.dtype == torch.bool else scores + attn_mask
    return _without_hidden(torch.matmul(torch.softmax(scores, -1), value), attn_mask)
