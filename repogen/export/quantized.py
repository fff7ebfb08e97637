"""Translations of operators on quantized tensors that TorchScript's exporter has for other tensors only (torch 2.13).

Static quantization by FX moves the quantization of an input before operators that only change its shape. The exporter
represents a quantized tensor as a tuple with its scale and zero point. Its translations of ``unsqueeze``, ``permute``,
slices and others accept only tensors; here, they get dequantized values, and their results are quantized with the same
numbers, which is exact.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.onnx import symbolic_helper

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_OPSET, _LAST_OPSET = 9, 20
"""The opsets of which TorchScript's exporter has modules with translations."""

_OF_SHAPES = (
    *("unsqueeze", "squeeze", "permute", "movedim", "slice", "flip", "repeat", "stack", "pad", "constant_pad_nd"),
    *("index", "index_select", "narrow", "pixel_shuffle", "pixel_unshuffle", "unflatten", "clamp"),
)
"""Operators that return values of their input."""
_OF_PARTS = ("split", "split_with_sizes", "unbind", "unsafe_chunk", "chunk")
"""Operators that return several tensors."""


def quantized_symbolics(opset: int) -> dict[str, Callable[..., Any]]:
    """Return the translations by qualified name; those of other tensors remain as they are."""
    of_first = symbolic_helper.quantized_args(True)  # noqa: FBT003 - one flag for each argument
    symbolics: dict[str, Callable[..., Any]] = {"aten::relu6": of_first(_relu6)}
    for name in _OF_SHAPES:
        if base := _translation(name, opset):
            symbolics[f"aten::{name}"] = of_first(base)
    for name in _OF_PARTS:
        if base := _translation(name, opset):
            symbolics[f"aten::{name}"] = partial(_parts, base)
    if base := _translation("prim_constant_chunk", opset):
        symbolics["prim::ConstantChunk"] = partial(_parts, base)
    return symbolics


def _translation(name: str, opset: int) -> Callable[..., Any] | None:
    """Return the newest translation of the exporter for an opset."""
    for version in range(min(opset, _LAST_OPSET), _FIRST_OPSET - 1, -1):
        module = import_module(f"torch.onnx.symbolic_opset{version}")
        translation: Callable[..., Any] | None = getattr(module, name, None)
        if translation is not None:
            return translation
    return None


def _relu6(g: Any, x: Any) -> Any:  # noqa: ANN401 - the exporter's graph is not typed
    low, high = (g.op("CastLike", g.op("Constant", value_t=torch.tensor(limit)), x) for limit in (0.0, 6.0))
    return g.op("Min", g.op("Max", x, low), high)


def _parts(base: Callable[..., Any], g: Any, x: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
    if x.node().kind() != "prim::TupleConstruct":
        return base(g, x, *arguments, **options)
    values, scale, zero_point, _ = symbolic_helper.dequantize_helper(g, x)
    parts = base(g, values, *arguments, **options)
    if not isinstance(parts, (list, tuple)):
        return parts
    quantized = [symbolic_helper.quantize_helper(g, part, scale, zero_point) for part in parts]
    dtype = next(x.node().inputs()).type().dtype()
    for part in quantized:  # the exporter does not infer the types of the outputs of a Split
        next(part.node().inputs()).setType(torch._C.TensorType.get().with_dtype(dtype))  # noqa: SLF001
    return quantized
