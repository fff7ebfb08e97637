"""``len`` of a tensor and distributions in the code of a model."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.export.python_code import exportable_python


class Points(nn.Module):
    """Adds the positions of every second row of its input, and a number."""

    def forward(self, x: torch.Tensor) -> Any:
        """Return one row for every two rows."""
        pooled = nn.functional.avg_pool1d(x.T[None], 3, 2, 1)[0].T
        positions = torch.arange(pooled.shape[0]).float()
        return pooled + positions[:, None].expand(len(positions), 3) + len([x])


class Density(nn.Module):
    """The log-density of a normal distribution."""

    def __init__(self) -> None:
        """Create the distribution."""
        super().__init__()
        self.base = torch.distributions.Normal(torch.zeros(3), torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        """Return a density per value."""
        density: Any = self.base
        return density.log_prob(x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("kind", [Points, Density])
def test_python_code_is_exported(kind: Any, *, dynamo: bool) -> None:
    """The graph agrees at another size, and nothing remains changed."""
    model = kind().eval()
    content: Any = io.BytesIO()
    options: Any = {"dynamic_shapes": ({0: "n"},)} if dynamo else {"dynamic_axes": {"x": {0: "n"}}}
    with exportable_python(model):
        program: Any = torch.onnx.export(
            model, (torch.randn(4, 3),), None if dynamo else content, dynamo=dynamo, input_names=["x"], verbose=False,
            **options,
        )  # fmt: skip
    if dynamo:
        program.save(content)
    assert "len" not in globals()
    assert torch.distributions.Normal(0.0, 1.0)._validate_args  # noqa: SLF001
    x = torch.randn(7, 3)
    session = onnxruntime.InferenceSession(content.getvalue(), providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), model(x))
