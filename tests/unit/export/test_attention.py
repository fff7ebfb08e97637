"""Attention in plain operators computes the same as PyTorch's fused attention."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from repogen.export.attention import attend, eager_attention
from repogen.export.symbolics import register_symbolics
from repogen.export.translations import TRANSLATIONS


@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_result_equals_fused_attention(mask: str, groups: int, scale: float | None) -> None:
    """With each kind of mask, grouped heads, and a scale; one query has no visible key."""
    torch.manual_seed(0)
    query = torch.randn(2, 4, 5, 8)
    key, value = torch.randn(2, 4 // groups, 5, 8), torch.randn(2, 4 // groups, 5, 6)
    keep = torch.rand(2, 1, 5, 5) > 0.3
    keep[..., 0], keep[0, 0, 2] = True, False
    added = torch.randn(2, 1, 5, 5).masked_fill(~keep, -torch.inf)
    attn_mask = {"boolean": keep, "added": added}.get(mask)
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


class History(nn.Module):
    """Attention to a history, with a boolean mask and with one that is added."""

    def forward(
        self, query: torch.Tensor, history: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both results."""
        added = torch.zeros(keep.shape).masked_fill(~keep, -float("inf"))
        return (
            scaled_dot_product_attention(query, history, history, keep),
            scaled_dot_product_attention(query, history, history, attn_mask=added),
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["dynamo", "traced", "scripted"])
@pytest.mark.parametrize("opset", [17, 20])
def test_a_query_without_keys(exporter: str, opset: int) -> None:
    """PyTorch returns zeros; the exporters write the average of the values, or NaN."""
    query, history = torch.randn(3, 1, 2, 4), torch.randn(3, 1, 5, 4)
    keep = torch.ones(3, 1, 2, 5, dtype=torch.bool)
    content: Any = io.BytesIO()
    options: Any = {"input_names": ["query", "history", "keep"], "opset_version": max(opset, 18)}
    if exporter == "dynamo":
        options |= {"dynamo": True, "custom_translation_table": TRANSLATIONS, "verbose": False}
        torch.onnx.export(History(), (query, history, keep), **options).save(content)  # type: ignore[union-attr] # not None
    else:
        register_symbolics(opset)
        module: Any = torch.jit.script(History()) if exporter == "scripted" else History()
        options |= {"dynamo": False, "opset_version": opset}
        torch.onnx.export(module, (query, history, keep), content, **options)
    keep[1] = keep[2, :, 1] = False
    session = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
    inputs = {"query": query.numpy(), "history": history.numpy(), "keep": keep.numpy()}
    for actual, expected in zip(session.run(None, inputs), History()(query, history, keep), strict=True):
        torch.testing.assert_close(torch.from_numpy(actual), expected)
