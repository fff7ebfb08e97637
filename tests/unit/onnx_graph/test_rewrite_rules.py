"""Rules of onnxscript that would drop small constants."""

from __future__ import annotations

import onnxruntime
import pytest
import torch
from torch import nn

from repogen.onnx_graph.rewrite_rules import require_exact_constants


class Normalized(nn.Module):
    """Divides by a sum that may be zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return shares."""
        return (x + 0) / (x.sum(1, keepdim=True) + 1e-8) * 1.000001


@pytest.mark.filterwarnings("ignore")
def test_small_constants_stay() -> None:
    """Without its 1e-8, the graph returns NaN for zeros; 0 itself is dropped."""
    require_exact_constants()
    program = torch.onnx.export(Normalized(), (torch.ones(2, 3),), dynamo=True, verbose=False)
    assert program is not None
    assert [node.op_type for node in program.model.graph] == ["ReduceSum", "Add", "Div", "Mul"]
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for scale in (0.0, 1e-8, 1.0):
        x = torch.ones(2, 3) * scale
        (shares,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.tensor(shares), Normalized()(x))
