"""Attention in plain operators, for exporters that have no translation of the fused one, or a wrong one."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx_ir as ir

    from repogen.artifacts.source import SourceModel
    from repogen.export.exporter import Exporter


class EagerAttention:
    """An exporter, run while ``scaled_dot_product_attention`` is matrix products and a softmax.

    Args:
        exporter: Which one.
    """

    def __init__(self, exporter: Exporter) -> None:
        """Keep the exporter."""
        self._exporter = exporter
        self.name = f"{exporter.name}-eager"

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Export; see the exporter."""
        with eager_attention():
            return self._exporter.export(source, args, opset, directory)


@contextmanager
def eager_attention() -> Iterator[None]:
    """Replace ``torch.nn.functional.scaled_dot_product_attention`` while the block runs."""
    fused = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = fused


def attend(  # noqa: PLR0913, PLR0917 - the signature of PyTorch's own
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001 - the model is in evaluation mode
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - as above
) -> torch.Tensor:
    """Compute what the documentation of ``scaled_dot_product_attention`` gives as its equivalent.

    Args:
        query: ``[…, heads, L, E]``.
        key: ``[…, key heads, S, E]``.
        value: ``[…, key heads, S, Ev]``.
        attn_mask: Broadcastable to ``[…, heads, L, S]``: boolean (True takes part) or added to the scores.
        dropout_p: Ignored.
        is_causal: Whether position ``i`` sees only keys up to ``i``.
        scale: Of the scores; ``1 / sqrt(E)`` when None.
        enable_gqa: Whether key heads are shared by several query heads.
    """
    if enable_gqa:
        groups = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    lowest = torch.finfo(scores.dtype).min
    if is_causal:
        seen = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~seen, lowest)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, lowest) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.matmul(torch.softmax(scores, -1), value)
