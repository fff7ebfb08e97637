"""Final states of recurrent layers over packed rows, whose other output is unused.

TorchScript's exporter crashes on such a layer: it moves the unpacking of the output behind it, and there is none.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MESSAGE = "vector::_M_range_check"
"""Part of the exporter's error."""
_LAYERS: tuple[Any, ...] = (nn.RNN, nn.GRU, nn.LSTM)


@contextmanager
def used_packed_outputs() -> Iterator[None]:
    """Let the final states of recurrent layers depend on their unpacked outputs, which adds 0, while the block runs."""
    originals = [layer.forward for layer in _LAYERS]
    for layer, original in zip(_LAYERS, originals, strict=True):
        layer.forward = _with_used_output(original)
    try:
        yield
    finally:
        for layer, original in zip(_LAYERS, originals, strict=True):
            layer.forward = original


def _with_used_output(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: nn.RNNBase, input: Any, hx: Any = None) -> Any:  # noqa: A002, ANN401 - PyTorch's signature
        output, state = original(self, input, hx)
        if isinstance(input, PackedSequence):
            zero = pad_packed_sequence(output, batch_first=self.batch_first)[0].sum() * 0
            state = tuple(part + zero for part in state) if isinstance(state, tuple) else state + zero
        return output, state

    return forward
