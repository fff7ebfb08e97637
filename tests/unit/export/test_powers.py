"""Powers of integers."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.symbolics import register_symbolics
from repogen.export.translations import TRANSLATIONS


class Powers(nn.Module):
    """A polynomial hash, and powers of integers, which wrap."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return them as rows."""
        places = torch.arange(x.shape[1], dtype=x.dtype)
        constant = torch.stack([x**0, x**1, x**2, x**5, x**13])
        return torch.cat([constant, torch.stack([31**places * x, x ** (places % 4), x ** (places - 3)])])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("exporter", ["dynamo", "traced", "scripted"])
def test_powers_of_integers(exporter: str, dtype: torch.dtype) -> None:
    """ONNX Runtime computes them in float64, and TorchScript's exporter in float32."""
    module: Any = Powers().eval()
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(-(2**31), 2**31, (2, 20), generator=draw).to(dtype)
    x[0, :4] = torch.tensor([0, 1, -1, 2])
    content = io.BytesIO()
    if exporter == "dynamo":
        sizes: Any = {"dynamic_shapes": {"x": {1: "columns"}}, "custom_translation_table": TRANSLATIONS}
        program = torch.onnx.export(module, (x[:, :6],), dynamo=True, verbose=False, **sizes)
        assert program is not None
        content.write(program.model_proto.SerializeToString())
    else:
        script = torch.jit.script(module) if exporter == "scripted" else module
        register_symbolics(20)
        axes: Any = {"dynamic_axes": {"x": {1: "columns"}}, "input_names": ["x"]}
        torch.onnx.export(script, (x[:, :6],), content, dynamo=False, opset_version=20, **axes)  # type: ignore[arg-type] # buffers work, though not declared
    session = onnxruntime.InferenceSession(content.getvalue())
    assert torch.equal(torch.tensor(session.run(None, {"x": x.numpy()})[0]), module(x))
