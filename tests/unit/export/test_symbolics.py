"""Translations that TorchScript's exporter lacks."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.symbolics import register_symbolics
from repogen.export.translations import TRANSLATIONS


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


class StableSort(nn.Module):
    """Sorts values with ties, in both directions, stable and by default."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return values, and indices of three ways to sort."""
        values, indices = torch.sort(x, dim=1, descending=True, stable=True)
        return values, indices, torch.argsort(x, dim=1, stable=True), torch.sort(x, dim=0, stable=True)[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exporter", ["traced", "scripted", "dynamo"])
def test_stable_sort(exporter: str) -> None:
    """Equal values keep their order: ONNX's TopK is stable, and the exporters only translate the default sort."""
    module: Any = torch.jit.script(StableSort()) if exporter == "scripted" else StableSort()
    x = torch.randint(0, 3, (4, 9), generator=torch.Generator().manual_seed(0)).float()
    content = io.BytesIO()
    if exporter == "dynamo":
        program = torch.onnx.export(module.eval(), (x,), dynamo=True, custom_translation_table=TRANSLATIONS)
        assert program is not None
        content.write(program.model_proto.SerializeToString())
    else:
        register_symbolics(20)
        torch.onnx.export(module.eval(), (x,), content, opset_version=20, dynamo=False)  # type: ignore[arg-type] # as above
    session = onnxruntime.InferenceSession(content.getvalue())
    outputs = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert all(torch.equal(torch.tensor(a), b) for a, b in zip(outputs, StableSort()(x), strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, torch.inf])
def test_distances(p: float) -> None:
    """torch.cdist has a translation in TorchScript's exporter only."""

    class Distances(nn.Module):
        """Compares batches of vectors."""

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            """Return all distances."""
            return torch.cdist(x, y, p)

    x, y = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    program = torch.onnx.export(Distances(), (x, y), dynamo=True, custom_translation_table=TRANSLATIONS)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (distances,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    assert torch.allclose(torch.tensor(distances), torch.cdist(x, y, p), atol=1e-5)
