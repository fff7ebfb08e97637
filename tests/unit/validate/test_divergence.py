"""The first operator that a graph computes differently."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

import onnx
import pytest
import torch
from torch import nn

from repogen.artifacts.built_model import distinct_texts
from repogen.validate.divergence import first_divergence
from repogen.validate.tolerance import Limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


LIMIT = Limit(rtol=1e-3, share=1e-5, ceiling=2e-3)


class Block(nn.Module):
    """A block with an activation of choice."""

    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Create layers that do not depend on the activation."""
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both layers."""
        result: torch.Tensor = self.norm(self.activation(self.linear(x)))
        return result


class Net(nn.Module):
    """Two blocks, the second with an activation of choice; flat outputs."""

    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor], last: float = 1.0) -> None:
        """Seed the layers."""
        super().__init__()
        torch.manual_seed(0)
        self.module = nn.ModuleDict({"first": Block(torch.relu), "second": Block(activation)})
        self.last = last

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output of the second block, and that of the first times ``last``."""
        first = self.module["first"](x)
        return self.module["second"](first), first * self.last


def graph(net: nn.Module, path: Path) -> Path:
    """Trace a net to a file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a deprecation of the exporter
        torch.onnx.export(net.eval(), (torch.ones(2, 4),), buffer, dynamo=False, input_names=["x"])  # type: ignore[arg-type] # buffers work, though not declared
    onnx.save_model(onnx.load_model_from_string(buffer.getvalue()), path)
    return path


X = {"x": torch.linspace(-2, 2, 8).reshape(2, 4).numpy()}


def test_equal_graph_has_no_divergence(tmp_path: Path) -> None:
    """Even if operators are fused and renamed."""
    net = Net(torch.tanh)
    assert first_divergence(net, graph(net, tmp_path / "m.onnx"), X, LIMIT) is None


def test_operator_is_reported_with_its_module_and_line(tmp_path: Path) -> None:
    """The first that differs, not those that depend on it."""
    path = graph(Net(torch.sigmoid), tmp_path / "m.onnx")
    divergence = first_divergence(Net(torch.tanh).eval(), path, X, LIMIT)
    assert divergence is not None
    assert (divergence.operator, divergence.module, divergence.shape) == ("aten.tanh", "second", (2, 4))
    assert divergence.where.startswith("test_divergence.py:")
    assert "aten.tanh in module 'second' (test_divergence.py:" in str(divergence)
    assert list(tmp_path.iterdir()) == [path]


class Normalized(nn.Module):
    """A convolution with a batch norm, which an exporter fuses."""

    def __init__(self) -> None:
        """Set statistics other than those of an initialized batch norm."""
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.linear = nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Linear(8, 2)
        for tensor in (self.norm.running_mean, self.norm.running_var, self.norm.bias.data):
            assert tensor is not None
            tensor.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        """Return one output."""
        return (self.linear(torch.relu(self.norm(self.conv(x[:, None])).flatten(1))),)


def test_fused_operator_is_not_reported(tmp_path: Path) -> None:
    """Nothing in the graph corresponds to the convolution, also if the tolerance is below the rounding."""
    net = Normalized().eval()
    path = graph(net, tmp_path / "m.onnx")
    assert first_divergence(net, path, X, LIMIT) is None
    divergence = first_divergence(net, path, X, Limit(rtol=0.0, share=1e-5, atol=1e-12))
    assert divergence is not None
    assert divergence.actual is not None
    assert (divergence.module, divergence.operator) == ("norm", "aten.native_batch_norm")
    assert 0 < abs(divergence.actual - divergence.expected) < 1e-5
    expected, actual = distinct_texts(divergence.expected, divergence.actual)
    assert expected != actual
    assert f"PyTorch {expected}, nearest in the graph {actual} (Conv " in str(divergence)


def test_output_must_be_at_its_position(tmp_path: Path) -> None:
    """A wrong output differs even if it equals another value of the graph."""
    path = graph(Net(torch.tanh, last=2.0), tmp_path / "m.onnx")
    divergence = first_divergence(Net(torch.tanh, last=1.0).eval(), path, X, LIMIT)
    assert divergence is not None
    assert divergence.operator.startswith("aten.mul")
    assert divergence.actual == pytest.approx(2 * divergence.expected)


def test_transposed_weight_is_not_reported(tmp_path: Path) -> None:
    """The graph has no value that it can be compared with; the product that uses it differs."""
    net = Net(torch.tanh)
    path = graph(net, tmp_path / "m.onnx")
    with torch.no_grad():
        next(param for name, param in net.named_parameters() if name.endswith("second.linear.bias")).add_(0.1)
    divergence = first_divergence(net, path, X, LIMIT)
    assert divergence is not None
    assert (divergence.operator, divergence.module) == ("aten.addmm", "second.linear")
    assert divergence.actual is not None
