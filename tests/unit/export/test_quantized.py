"""Operators on quantized tensors, which TorchScript's exporter translates only for other tensors."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from repogen.export.symbolics import register_symbolics

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[torch.Tensor], torch.Tensor]


class Quantized(nn.Module):
    """Quantizes its input, calls a function, and dequantizes the result."""

    def __init__(self, function: Function) -> None:
        """Store the function."""
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result."""
        return self.function(torch.quantize_per_tensor(x, 0.05, 120, torch.quint8)).dequantize()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.unsqueeze(1),
        lambda x: x.unsqueeze(3).squeeze(3),
        lambda x: x.permute(0, 2, 1),
        lambda x: x.movedim(1, 2),
        lambda x: x[:, 1:3],
        lambda x: x.narrow(2, 1, 3),
        lambda x: x.flip(2),
        lambda x: x.repeat(1, 2, 1),
        lambda x: torch.stack([x, x], dim=1),
        lambda x: x[:, [2, 0]],
        lambda x: x.unflatten(2, (2, 4)),
        lambda x: x.chunk(2, 1)[1],
        lambda x: x.split([1, 3], 1)[1],
        lambda x: x.unbind(1)[2],
        lambda x: torch.cat([part.unsqueeze(1) for part in x.unbind(1)], dim=1),
        lambda x: functional.pad(x, (1, 2), mode="reflect"),
        lambda x: functional.pixel_shuffle(x.unsqueeze(2), 2),
        lambda x: x.clamp(-0.5, 0.5),
        functional.relu6,
    ],
)
def test_operators_of_quantized_tensors(function: Function, opset: int) -> None:
    """They return exactly what PyTorch returns, for a batch size that differs from the example's."""
    model = Quantized(function)
    x = torch.randint(-60, 60, (5, 4, 8)) * 0.05 + 0.01  # no value near the middle of two, where ONNX rounds otherwise
    register_symbolics(opset)
    content = io.BytesIO()
    torch.onnx.export(
        model,
        (x[:2],),
        content,  # type: ignore[arg-type] # buffers work, though not declared
        dynamo=False,
        opset_version=opset,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    (result,) = onnxruntime.InferenceSession(content.getvalue()).run(None, {"x": x.numpy()})
    assert torch.equal(torch.from_numpy(result), model(x))
