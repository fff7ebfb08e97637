"""Results over all values up to each position, and order statistics."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.translations import TRANSLATIONS
from repogen.onnx_graph.kernel_gaps import fill_kernel_gaps


class Running(nn.Module):
    """Calls the functions that the exporter lacks, or translates incorrectly."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the results along both axes."""
        values, indices = x.cummax(1)
        lowest, places = x.cummin(-2)
        middle = x.median(1, keepdim=True).values
        third = x.kthvalue(3, dim=-1).values
        finite = x.clamp(-9, 9)
        products = (finite.cos().cumprod(1), (finite.int() % 5).cumprod(0))
        return (x.logcumsumexp(1), *products, values, indices, lowest, places, middle, third, x.median())


@pytest.mark.filterwarnings("ignore")
def test_running_results() -> None:
    """Values of -300 to 300, and -inf, at sizes that the example does not have."""
    program = torch.onnx.export(
        Running(),
        (torch.randn(2, 6),),
        dynamo=True,
        custom_translation_table=TRANSLATIONS,
        dynamic_shapes={"x": {0: "rows", 1: "columns"}},
        verbose=False,
    )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = 100 * torch.randn(5, 21, generator=torch.Generator().manual_seed(0))
    x[0, :3], x[1, 4], x[2] = -torch.inf, -torch.inf, torch.arange(-10.0, 11.0)
    for actual, expected in zip(session.run(None, {"x": x.numpy()}), Running()(x), strict=True):
        torch.testing.assert_close(torch.tensor(actual), expected)


class Products(nn.Module):
    """Multiplies integers and floats."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the products of each row and column, and of all values."""
        return x.prod(1), x.prod(0, keepdim=True), x.int().prod(), (x[:, :2] > 0).prod(-1), (x / 2**60).prod(1)


@pytest.mark.filterwarnings("ignore")
def test_products_of_integers_are_exact() -> None:
    """They wrap, as in PyTorch; ONNX Runtime computes in float64."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(-(2**60), 2**60, (5, 21), generator=draw) | 1
    shapes = {"x": {0: "rows", 1: "columns"}}
    options: Any = {"dynamo": True, "custom_translation_table": TRANSLATIONS, "dynamic_shapes": shapes}
    program = torch.onnx.export(Products(), (x[:2, :6],), verbose=False, **options)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for actual, expected in zip(session.run(None, {"x": x.numpy()}), Products()(x), strict=True):
        torch.testing.assert_close(torch.tensor(actual), expected)


class Extremes(nn.Module):
    """Reduces all values, a scalar, or some axes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return maxima and minima, also of integers and truth values, and of a branch on all values."""
        whole = (10 * x).long() * 2**40
        is_high = x > 1
        branch = torch.cond(x.amax() > 0, torch.sin, torch.neg, (x,))
        of_axes = (x.amax((0, -1)), x.amin(-1, keepdim=True), whole.amax((1, 2)), is_high.amin(1))
        return (branch, x.amin(), whole.amax(), whole.amin(), is_high.amax(), x.sum().amax(), *of_axes)


@pytest.mark.filterwarnings("ignore")
def test_extremes_without_dim() -> None:
    """The exporter's own translation requires ``dim``."""
    options: Any = {"dynamo": True, "custom_translation_table": TRANSLATIONS, "dynamic_shapes": {"x": {0: "rows"}}}
    program = torch.onnx.export(Extremes(), (torch.randn(2, 3, 5),), opset_version=20, verbose=False, **options)
    assert program is not None
    fill_kernel_gaps(program.model)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    for values in (x, -x.abs()):
        for actual, expected in zip(session.run(None, {"x": values.numpy()}), Extremes()(values), strict=True):
            torch.testing.assert_close(torch.tensor(actual), expected)
