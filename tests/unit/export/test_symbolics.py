"""Translations that TorchScript's exporter lacks."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.symbolics import register_symbolics


class Cell(nn.Module):
    """Calls a recurrent cell; scripted, its forward compares the rank with ``in (1, 2)``."""

    def __init__(self, cell: nn.Module) -> None:
        """Store the cell."""
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return the next hidden state."""
        state: torch.Tensor = self.cell(x, hidden)
        return state


class Long(nn.Module):
    """Calls an LSTM cell."""

    def __init__(self, *, bias: bool) -> None:
        """Create the cell."""
        super().__init__()
        self.cell = nn.LSTMCell(5, 4, bias=bias)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both states."""
        states: tuple[torch.Tensor, torch.Tensor] = self.cell(x, (hidden, hidden * 2))
        return states


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("kind", ["gru", "lstm", "tanh", "relu"])
def test_scripted_recurrent_cells(kind: str, opset: int, bias: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """They agree with PyTorch for a batch size that differs from the example's."""
    cells: dict[str, Any] = {
        "gru": lambda: Cell(nn.GRUCell(5, 4, bias)),
        "lstm": lambda: Long(bias=bias),
        "tanh": lambda: Cell(nn.RNNCell(5, 4, bias)),
        "relu": lambda: Cell(nn.RNNCell(5, 4, bias, "relu")),
    }
    script: Any = torch.jit.script(cells[kind]().eval())
    x, hidden = torch.randn(3, 5), torch.randn(3, 4)
    register_symbolics(opset)
    content = io.BytesIO()
    torch.onnx.export(
        script,
        (x[:2], hidden[:2]),
        content,  # type: ignore[arg-type] # buffers work, though not declared
        dynamo=False,
        opset_version=opset,
        input_names=["x", "hidden"],
        dynamic_axes={"x": {0: "batch"}, "hidden": {0: "batch"}},
    )
    session = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
    expected = script(x, hidden)
    for actual, tensor in zip(
        session.run(None, {"x": x.numpy(), "hidden": hidden.numpy()}),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):
        torch.testing.assert_close(torch.from_numpy(actual), tensor.detach())
