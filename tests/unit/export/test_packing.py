"""Recurrent layers over packed rows whose output is unused."""

from __future__ import annotations

import io
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from repogen.export.packing import MESSAGE, used_packed_outputs


class LastState(nn.Module):
    """Returns the last state of each row."""

    def __init__(self, kind: Any) -> None:
        """Create a layer of both directions."""
        super().__init__()
        self.rnn: nn.RNNBase = kind(5, 6, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        """Return the last state, without the output."""
        state = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[1]
        return (state[0] if isinstance(state, tuple) else state)[-1]


def exported(model: nn.Module) -> bytes:
    """Return the traced graph."""
    content = io.BytesIO()
    torch.onnx.export(
        model,
        (torch.randn(3, 7, 5), torch.tensor([7, 4, 2])),
        content,  # type: ignore[arg-type] # buffers work, though not declared
        dynamo=False,
        opset_version=20,
        input_names=["x", "lengths"],
        dynamic_axes={"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}},
    )
    return content.getvalue()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_last_state_of_packed_rows(kind: Any) -> None:
    """The exporter crashes without the block; with it, the graph agrees for other sizes and lengths."""
    model, forward = LastState(kind).eval(), kind.forward
    with pytest.raises(RuntimeError, match=MESSAGE):
        exported(model)
    with used_packed_outputs():
        content = exported(model)
    assert kind.forward is forward
    x, lengths = torch.randn(4, 9, 5), torch.tensor([2, 9, 1, 3])
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"x": x.numpy(), "lengths": lengths.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), model(x, lengths).detach())
