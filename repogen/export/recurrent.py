"""Recurrent layers for the dynamo exporter.

To infer the shapes of their outputs, torch.export runs them step by step, which fixes the number of steps at the
example's; if it was computed, as by a convolution with a stride, the export fails. The exporter also has no translation
of ``nn.RNN`` (onnxscript 0.7.2). Packed rows are other operators, see ``repogen.export.packing``.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from onnxscript import opset18
from torch._decomp import decompositions
from torch._subclasses import FakeTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

op: Any = opset18  # its annotations do not accept its own results


@contextmanager
def any_number_of_steps() -> Iterator[None]:
    """Infer the shapes of the outputs of recurrent layers without their steps in the block."""
    functions: Any = decompositions
    with ExitStack() as changed:
        for name in ("one_layer_rnn", "one_layer_lstm", "mkldnn_one_layer_lstm"):
            layer = getattr(functions, name)
            changed.callback(setattr, functions, name, layer)
            setattr(functions, name, _shapes_of(layer))
        yield


def _shapes_of(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of one layer and one direction whose results have the right shapes, but no values.

    It replaces runs with fake tensors only. Where an operator is decomposed into its steps, PyTorch passes others.
    """

    def shapes(inp: Any, hidden: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as PyTorch's
        if not isinstance(inp, FakeTensor):
            return layer(inp, hidden, *arguments, **options)
        states = hidden if isinstance(hidden, tuple) else (hidden,)
        output = inp.new_empty((*inp.shape[:2], states[0].shape[-1]))
        final = tuple(state.clone() for state in states)
        return output, final if isinstance(hidden, tuple) else final[0]

    return shapes


def _recurrent(activation: str) -> Callable[..., tuple[Any, Any]]:
    """Return the translation of ``nn.RNN``, whose activation is ``Tanh`` or ``Relu``."""

    def translated(  # noqa: PLR0913, PLR0917 - the operator's arguments
        self: Any,  # noqa: ANN401 - the exporter's values are not typed
        hx: Any,  # noqa: ANN401
        params: Any,  # noqa: ANN401
        has_biases: bool,  # noqa: FBT001
        num_layers: int,
        dropout: float,
        train: bool,  # noqa: FBT001
        bidirectional: bool,  # noqa: FBT001
        batch_first: bool,  # noqa: FBT001
    ) -> tuple[Any, Any]:
        del dropout, train  # repogen exports modules in evaluation mode
        directions = 2 if bidirectional else 1
        options = {
            "activations": [activation] * directions,
            "direction": "bidirectional" if bidirectional else "forward",
            "hidden_size": params[1].shape[-1],
        }
        parts = 4 if has_biases else 2  # of each direction: two matrices, and two biases
        zero = op.Constant(value_ints=[0])
        rows, states = op.Transpose(self, perm=[1, 0, 2]) if batch_first else self, []
        for layer in range(num_layers):
            begin = layer * directions
            at = [(begin + direction) * parts for direction in range(directions)]
            weights = [_stacked([params[start + part] for start in at]) for part in (0, 1)]
            biases = (
                _stacked([op.Concat(*params[start + 2 : start + 4], axis=0) for start in at]) if has_biases else None
            )
            first, last = (op.Constant(value_ints=[number]) for number in (begin, begin + directions))
            initial = op.Slice(hx, first, last, zero)
            steps, final = op.RNN(rows, *weights, biases, None, initial, **options)
            # [time, directions, batch, features] -> [time, batch, directions * features]
            rows = op.Reshape(op.Transpose(steps, perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1]))
            states.append(final)
        state = op.Concat(*states, axis=0) if len(states) > 1 else states[0]
        return op.Transpose(rows, perm=[1, 0, 2]) if batch_first else rows, state

    return translated


def _stacked(values: list[Any]) -> Any:  # noqa: ANN401
    first = op.Constant(value_ints=[0])
    expanded = [op.Unsqueeze(value, first) for value in values]
    return op.Concat(*expanded, axis=0) if len(expanded) > 1 else expanded[0]


RECURRENT_TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.rnn_tanh.input: _recurrent("Tanh"),
    torch.ops.aten.rnn_relu.input: _recurrent("Relu"),
}
"""Operator -> its translation, as in ``custom_translation_table`` of ``torch.onnx.export``."""
