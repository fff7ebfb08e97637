"""Attention in plain operators is PyTorch's own attention."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from repogen.export.attention import attend, eager_attention


@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_it_computes_what_the_fused_one_does(mask: str, groups: int, scale: float | None) -> None:
    """Masks of each kind, grouped heads, another scale; a mask row without a True is left out, as PyTorch differs."""
    torch.manual_seed(0)
    query = torch.randn(2, 4, 5, 8)
    key, value = torch.randn(2, 4 // groups, 5, 8), torch.randn(2, 4 // groups, 5, 6)
    keep = torch.rand(2, 1, 5, 5) > 0.3
    keep[..., 0] = True
    given = {"boolean": keep, "added": torch.randn(2, 1, 5, 5)}.get(mask)
    options = {"attn_mask": given, "is_causal": mask == "causal", "scale": scale, "enable_gqa": groups > 1}
    torch.testing.assert_close(
        attend(query, key, value, **options),  # type: ignore[arg-type] # one dict for both
        scaled_dot_product_attention(query, key, value, **options),  # type: ignore[arg-type] # the same
    )


def test_the_fused_one_is_back_afterwards() -> None:
    """Whoever called it while the export ran."""
    with eager_attention():
        assert torch.nn.functional.scaled_dot_product_attention is attend
    assert torch.nn.functional.scaled_dot_product_attention is scaled_dot_product_attention
