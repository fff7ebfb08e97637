"""Attention in plain operators computes the same as PyTorch's fused attention."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from repogen.export.attention import attend, eager_attention


@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_result_equals_fused_attention(mask: str, groups: int, scale: float | None) -> None:
    """With each kind of mask, grouped heads, and a scale; no mask row is all False, because PyTorch differs there."""
    torch.manual_seed(0)
    query = torch.randn(2, 4, 5, 8)
    key, value = torch.randn(2, 4 // groups, 5, 8), torch.randn(2, 4 // groups, 5, 6)
    keep = torch.rand(2, 1, 5, 5) > 0.3
    keep[..., 0] = True
    attn_mask = {"boolean": keep, "added": torch.randn(2, 1, 5, 5)}.get(mask)
    options = {"attn_mask": attn_mask, "is_causal": mask == "causal", "scale": scale, "enable_gqa": groups > 1}
    torch.testing.assert_close(
        attend(query, key, value, **options),  # type: ignore[arg-type] # one dict of options
        scaled_dot_product_attention(query, key, value, **options),  # type: ignore[arg-type] # one dict of options
    )


def test_fused_attention_is_restored() -> None:
    """After the block."""
    with eager_attention():
        assert torch.nn.functional.scaled_dot_product_attention is attend
    assert torch.nn.functional.scaled_dot_product_attention is scaled_dot_product_attention
