"""Recurrent layers over a number of steps that the model computes."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.recurrent import any_number_of_steps
from repogen.export.translations import TRANSLATIONS


class Strided(nn.Module):
    """Recurrent layers over the results of a convolution with a stride."""

    def __init__(self) -> None:
        """Create a layer of each kind, with and without its options."""
        super().__init__()
        self.convolution = nn.Conv1d(3, 4, 3, stride=2)
        options: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "batch_first": True}
        self.layers = nn.ModuleList(
            [
                nn.GRU(4, 5),
                nn.GRU(4, 5, dropout=0.5, **options),
                nn.RNN(4, 5, **options),
                nn.RNN(4, 5, nonlinearity="relu", bias=False),
                nn.LSTM(4, 5, **options),
            ]
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return all steps, and the last states."""
        rows = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        results = [layer(rows if layer.batch_first else rows.transpose(0, 1)) for layer in self.layers]
        return [
            part for steps, states in results for part in (steps, *(states if isinstance(states, tuple) else (states,)))
        ]


@pytest.mark.filterwarnings("ignore")
def test_computed_number_of_steps() -> None:
    """PyTorch's own inference of shapes runs all steps, which fixes their number."""
    model = Strided().eval()
    shapes = {"x": {0: "batch", 1: "time"}}
    options: Any = {"dynamo": True, "custom_translation_table": TRANSLATIONS, "dynamic_shapes": shapes}
    with any_number_of_steps():
        program = torch.onnx.export(model, (torch.randn(2, 11, 3),), opset_version=18, verbose=False, **options)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for size in ((3, 30, 3), (1, 3, 3)):
        x = torch.randn(size)
        for actual, expected in zip(session.run(None, {"x": x.numpy()}), model(x), strict=True):
            torch.testing.assert_close(torch.tensor(actual), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_decompositions_have_all_steps() -> None:
    """A program without the operator computes what PyTorch computes."""
    layer = nn.RNN(4, 5).eval()
    x = torch.randn(3, 2, 4)
    with any_number_of_steps():
        program = torch.export.export(layer, (x,)).run_decompositions()
    assert not any("rnn" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(x), layer(x))
