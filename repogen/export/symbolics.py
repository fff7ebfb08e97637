"""Translations of operators that TorchScript's exporter lacks, or translates incorrectly (torch 2.13).

Recurrent cells, stable sorting, error functions, ``rms_norm``, ``deg2rad`` and ``in`` are missing. ``//`` rounds toward
zero, through int64 for floats; ``%`` and ``torch.div`` with ``rounding_mode`` of floats are not exact
(``repogen.export.division``), logarithms lose small values (``repogen.export.logarithms``), powers of integers are
computed in float32, and ``atan2`` is -pi for (0, -1). A trace has the floats that a model computes from sizes in
float32, so ``arange`` of them may have a different length in PyTorch, and is rejected.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from onnx import TensorProto
from torch.onnx import symbolic_opset9, symbolic_opset10, symbolic_opset11, symbolic_opset14
from torch.onnx.utils import register_custom_op_symbolic

from repogen.errors import ExportError
from repogen.export.division import floor_quotient, floor_quotient_of_integers, remainder_of_floats
from repogen.export.logarithms import (
    cross_entropy_of_logits,
    erfc,
    erfcx,
    expm1,
    log1p,
    log_add_exp,
    log_ndtr,
    log_sigmoid,
    softplus,
)
from repogen.export.powers import integer_power
from repogen.export.quantized import quantized_symbolics

if TYPE_CHECKING:
    from collections.abc import Callable

_SPLIT_OPSET = 18
"""The first opset in which Split has the number of its outputs."""
_AXES_OPSET = 18
"""The first opset in which the axes of ReduceMax are an input."""
_FLOATS = frozenset({"Half", "Float", "Double"})
_INTEGERS = frozenset({"Byte", "Char", "Short", "Int", "Long"})


def register_symbolics(opset: int) -> None:
    """Register the translations in this process."""
    symbolics: dict[str, Any] = {
        "__contains_": _contains,
        "atan2": _atan2,
        "deg2rad": partial(_scaled_angle, factor=math.pi / 180),
        "rad2deg": partial(_scaled_angle, factor=180 / math.pi),
        "rms_norm": _rms_norm,
        "gru_cell": _gru_cell,
        "sort": _sort,
        "argsort": _argsort,
        "div": _divide,
        "floor_divide": _floor_divide,
        "floordiv": _floor_divide,
        "remainder": _remainder,
        "pow": _power,
        "log1p": _of_one(log1p),
        "expm1": _of_one(expm1),
        "log_sigmoid": _of_one(log_sigmoid),
        "scaled_dot_product_attention": _attention,
        "erfc": _of_one(erfc),
        "special_erfc": _of_one(erfc),
        "special_erfcx": _of_one(erfcx),
        "special_log_ndtr": _of_one(log_ndtr),
        "binary_cross_entropy_with_logits": _cross_entropy_of_logits,
        "arange": _arange,
        "softplus": _softplus,
        "logaddexp": _log_add_exp,
        "logaddexp2": partial(_log_add_exp, log_of_base=math.log(2)),
        "lstm_cell": _lstm_cell,
        **dict.fromkeys(("mT", "mH", "adjoint"), _matrix_transpose),
        "rnn_tanh_cell": _tanh_cell,
    }
    for name, symbolic in {**symbolics, "rnn_relu_cell": _relu_cell}.items():
        register_custom_op_symbolic(f"aten::{name}", symbolic, opset)
    for name, symbolic in quantized_symbolics(opset).items():
        register_custom_op_symbolic(name, symbolic, opset)


def _contains(g: Any, values: Any, element: Any) -> Any:  # noqa: ANN401 - the exporter's graph is not typed
    """Compare with each value; PyTorch's own translation does not accept a list that became a constant."""
    node = values.node()
    if node.kind() == "onnx::Constant":
        items = [g.op("Constant", value_t=number.clone()) for number in node.t("value").reshape(-1)]
    else:
        items = list(node.inputs())
    is_equal = g.op("Constant", value_t=torch.tensor(False))  # noqa: FBT003 - a value
    for item in items:
        is_equal = g.op("Or", is_equal, g.op("Equal", element, item))
    return is_equal


def _atan2(g: Any, y: Any, x: Any) -> Any:  # noqa: ANN401
    """Return the angle of the point (x, y), with the signs of zeros as in PyTorch."""
    zero, one, pi, minus_pi = (
        g.op("CastLike", g.op("Constant", value_t=torch.tensor(number)), y) for number in (0.0, 1.0, math.pi, -math.pi)
    )

    def has_minus(value: Any) -> Any:  # noqa: ANN401
        return g.op("Or", g.op("Less", value, zero), g.op("Less", g.op("Reciprocal", value), zero))

    is_origin = g.op("And", g.op("Equal", x, zero), g.op("Equal", y, zero))
    angle = g.op("Atan", g.op("Div", y, g.op("Where", is_origin, one, x)))
    half_turn = g.op("Where", has_minus(y), minus_pi, pi)
    return g.op("Where", has_minus(x), g.op("Add", angle, half_turn), angle)


def _scaled_angle(g: Any, x: Any, factor: float) -> Any:  # noqa: ANN401
    if _are_integers(x):
        x = g.op("Cast", x, to_i=int(TensorProto.FLOAT))
    return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(factor, dtype=torch.float64)))


def _rms_norm(g: Any, x: Any, shape: Any, weight: Any, epsilon: Any) -> Any:  # noqa: ANN401
    """Divide by the root of the mean square over the last axes; float16 is computed in float32, as in PyTorch."""
    sizes = shape.node()
    rank = sizes.t("value").numel() if sizes.kind() == "onnx::Constant" else len(list(sizes.inputs()))
    axes = list(range(-rank, 0))
    is_half = x.type().scalarType() == "Half"
    value = g.op("Cast", x, to_i=int(TensorProto.FLOAT)) if is_half else x
    if epsilon.node().mustBeNone():
        least = torch.finfo(torch.float64 if x.type().scalarType() == "Double" else torch.float32).eps
    else:
        least = float(epsilon.node().t("value"))
    squares = g.op("Mul", value, value)
    if g.opset >= _AXES_OPSET:
        mean = g.op("ReduceMean", squares, g.op("Constant", value_t=torch.tensor(axes)))
    else:
        mean = g.op("ReduceMean", squares, axes_i=axes)
    number = g.op("Constant", value_t=torch.tensor(least, dtype=torch.float64))
    result = g.op("Div", value, g.op("Sqrt", g.op("Add", mean, number)))
    result = g.op("CastLike", result, x) if is_half else result
    return result if weight.node().mustBeNone() else g.op("Mul", result, weight)


def _matrix_transpose(g: Any, x: Any) -> Any:  # noqa: ANN401
    """Swap the last two axes; of real matrices, the conjugate transpose is the same."""
    return symbolic_opset9.transpose(g, x, -2, -1)


def _sort(g: Any, x: Any, *arguments: Any) -> Any:  # noqa: ANN401
    """Sort by ``dim, descending`` or ``stable, dim, descending``: the first of equal values is first, as in PyTorch."""
    dim, descending = (int(argument.node().t("value")) for argument in arguments[-2:])
    size = g.op("Gather", g.op("Shape", x), g.op("Constant", value_t=torch.tensor([dim])))
    return g.op("TopK", x, size, axis_i=dim, largest_i=descending, outputs=2)


def _argsort(g: Any, x: Any, *arguments: Any) -> Any:  # noqa: ANN401
    return _sort(g, x, *arguments)[1]


class _Operators:
    """Creates operators of TorchScript's graph as onnxscript does: ``op.Mod(x, y, fmod=1)``."""

    def __init__(self, g: Any) -> None:  # noqa: ANN401
        self._g = g

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return a function that adds the operator ``name``; its attributes are integers."""
        return partial(self._add, name)

    def _add(self, name: str, *inputs: Any, **attributes: int) -> Any:  # noqa: ANN401
        return self._g.op(name, *inputs, **{f"{key}_i": value for key, value in attributes.items()})


def _divide(g: Any, x: Any, divisor: Any, *mode: Any) -> Any:  # noqa: ANN401
    """Divide; ``mode`` is ``floor``, ``trunc`` or None."""
    rounding = mode[0].node().s("value") if mode and not mode[0].node().mustBeNone() else ""
    if rounding == "floor":
        return _floor_divide(g, x, divisor)
    quotient = g.op("Div", x, divisor) if rounding else symbolic_opset10.div(g, x, divisor)
    if not rounding or _are_integers(x, divisor):
        return quotient
    is_negative = g.op("Less", quotient, _number(g, 0.0))
    return g.op("Where", is_negative, g.op("Ceil", quotient), g.op("Floor", quotient))


def _floor_divide(g: Any, x: Any, divisor: Any) -> Any:  # noqa: ANN401
    if _are_integers(x, divisor):
        return floor_quotient_of_integers(_Operators(g), x, divisor)
    return floor_quotient(_Operators(g), partial(_number, g), x, divisor)


def _remainder(g: Any, x: Any, divisor: Any) -> Any:  # noqa: ANN401
    if _are_integers(x, divisor):
        return g.op("Mod", x, divisor)
    return remainder_of_floats(_Operators(g), partial(_number, g), x, divisor)


def _power(g: Any, x: Any, exponent: Any) -> Any:  # noqa: ANN401
    """Multiply integers."""
    if not _are_integers(x, exponent):
        return symbolic_opset9.pow(g, x, exponent)
    tensor = exponent if _is_number(x) else x
    constant = int(exponent.node().t("value")) if _is_number(exponent) else None
    if constant is not None and constant < 0:
        return symbolic_opset9.pow(g, x, exponent)

    def number(value: int) -> Any:  # noqa: ANN401
        return g.op("CastLike", g.op("Constant", value_t=torch.tensor(value)), tensor)

    base = number(int(x.node().t("value"))) if tensor is exponent else x
    return integer_power(_Operators(g), number, base, exponent if constant is None else constant)


def _is_number(value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is a constant number."""
    node = value.node()
    return bool(node.kind() == "onnx::Constant" and node.t("value").dim() == 0)


def _attention(g: Any, query: Any, key: Any, value: Any, mask: Any, *arguments: Any) -> Any:  # noqa: ANN401
    """Return zeros for a query whose keys are all masked; the exporter returns NaN for a mask that is added."""
    result = symbolic_opset14.scaled_dot_product_attention(g, query, key, value, mask, *arguments)
    if mask.node().mustBeNone():
        return result
    is_boolean = mask.type().scalarType() == "Bool"
    zero, lowest = (g.op("CastLike", _number(g, number), query) for number in (0.0, -math.inf))
    added = g.op("CastLike", mask, query)
    if g.opset >= _AXES_OPSET:
        largest = g.op("ReduceMax", added, g.op("Constant", value_t=torch.tensor([-1])))
    else:
        largest = g.op("ReduceMax", added, axes_i=[-1])
    return g.op("Where", g.op("Greater", largest, zero if is_boolean else lowest), result, zero)


def _softplus(g: Any, x: Any, *arguments: Any) -> Any:  # noqa: ANN401
    beta, threshold = (float(argument.node().t("value")) for argument in arguments)
    return softplus(_Operators(g), partial(_number, g), x, beta, threshold)


def _log_add_exp(g: Any, x: Any, y: Any, log_of_base: float = 1.0) -> Any:  # noqa: ANN401
    return log_add_exp(_Operators(g), partial(_number, g), x, y, log_of_base)


def _cross_entropy_of_logits(g: Any, x: Any, target: Any, weight: Any, positive_weight: Any, reduction: Any) -> Any:  # noqa: ANN401
    weights = [None if value.node().mustBeNone() else value for value in (weight, positive_weight)]
    loss = cross_entropy_of_logits(_Operators(g), partial(_number, g), x, target, weights[1])
    if weights[0] is not None:
        loss = g.op("Mul", loss, weights[0])
    reductions = (None, "ReduceMean", "ReduceSum")
    operator = reductions[int(reduction.node().t("value"))]
    return loss if operator is None else g.op(operator, loss, keepdims_i=0)


def _arange(g: Any, *arguments: Any) -> Any:  # noqa: ANN401
    """Reject floats that are not constant: their length would be computed in float32.

    Raises:
        ExportError: The range depends on a float that the model computes.
    """
    numbers = arguments[: {4: 3, 6: 2, 7: 3}.get(len(arguments), 1)]
    if any(_is_computed_float(number) for number in numbers):
        raise ExportError(
            "the length of torch.arange depends on a float that forward computes: for some sizes, it would differ from "
            "PyTorch's",
            "use integers: torch.arange(count) * step",
            code="export.no-translation",
        )
    return symbolic_opset11.arange(g, *arguments)


def _is_computed_float(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, torch.Value) or value.node().kind().endswith("::Constant"):
        return False
    kind = value.type()
    return kind.kind() == "FloatType" or (kind.kind() == "TensorType" and kind.scalarType() in _FLOATS)


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the translation of a function of one tensor."""

    def translated(g: Any, x: Any) -> Any:  # noqa: ANN401
        return function(_Operators(g), partial(_number, g), x)

    return translated


def _are_integers(*values: Any) -> bool:  # noqa: ANN401
    """Return whether all values are known to be integers; a script has values of unknown type."""
    return all(value.type().kind() == "IntType" or value.type().scalarType() in _INTEGERS for value in values)


def _number(g: Any, number: float) -> Any:  # noqa: ANN401
    """Return a constant, which the exporter converts to the type of the other operand."""
    return g.op("Constant", value_t=torch.tensor(number))


def _gru_cell(g: Any, x: Any, hidden: Any, *weights: Any) -> Any:  # noqa: ANN401
    of_input, of_hidden = _gates(g, x, hidden, weights)
    reset, update, new = _split(g, of_input, 3)
    reset_hidden, update_hidden, new_hidden = _split(g, of_hidden, 3)
    reset = g.op("Sigmoid", g.op("Add", reset, reset_hidden))
    update = g.op("Sigmoid", g.op("Add", update, update_hidden))
    new = g.op("Tanh", g.op("Add", new, g.op("Mul", reset, new_hidden)))
    return g.op("Add", new, g.op("Mul", update, g.op("Sub", hidden, new)))


def _lstm_cell(g: Any, x: Any, states: Any, *weights: Any) -> Any:  # noqa: ANN401
    hidden, cell = states.node().inputs()
    enter, forget, new, leave = _split(g, g.op("Add", *_gates(g, x, hidden, weights)), 4)
    retained_cell = g.op("Mul", g.op("Sigmoid", forget), cell)
    cell = g.op("Add", retained_cell, g.op("Mul", g.op("Sigmoid", enter), g.op("Tanh", new)))
    return g.op("Mul", g.op("Sigmoid", leave), g.op("Tanh", cell)), cell


def _tanh_cell(g: Any, x: Any, hidden: Any, *weights: Any) -> Any:  # noqa: ANN401
    return g.op("Tanh", g.op("Add", *_gates(g, x, hidden, weights)))


def _relu_cell(g: Any, x: Any, hidden: Any, *weights: Any) -> Any:  # noqa: ANN401
    return g.op("Relu", g.op("Add", *_gates(g, x, hidden, weights)))


def _gates(g: Any, x: Any, hidden: Any, weights: tuple[Any, ...]) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the products of the input and of the hidden state with their weights, and the biases added."""
    matrices = (g.op("Transpose", weight, perm_i=[1, 0]) for weight in weights[:2])
    products = [g.op("MatMul", value, matrix) for value, matrix in zip((x, hidden), matrices, strict=True)]
    biases = weights[2:] if len(weights) > 2 else ()  # noqa: PLR2004 - two matrices
    absent = [bias.node().mustBeNone() for bias in biases] or [True, True]
    return tuple(
        product if missing else g.op("Add", product, bias)
        for product, bias, missing in zip(products, biases or (None, None), absent, strict=True)
    )


def _split(g: Any, value: Any, parts: int) -> Any:  # noqa: ANN401
    count = {"num_outputs_i": parts} if g.opset >= _SPLIT_OPSET else {}
    return g.op("Split", value, axis_i=1, outputs=parts, **count)
