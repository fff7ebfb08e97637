"""Complex numbers in a program become pairs of real tensors, except in Fourier transforms.

ONNX has no operators for complex numbers. The dynamo exporter represents a complex tensor as a real one with a last
axis of 2, and translates some operators of it (onnxscript 0.7.2). Others have no translation, such as ``einsum``,
``matmul`` of batches, and assignments to slices. Its translations of a complex and a real tensor or number are wrong:
``spectrum + 1`` adds 1 to both parts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental import _config
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_aten: Any = torch.ops.aten
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
# fmt: off
_LINEAR = (
    "_to_copy", "_unsafe_view", "add", "alias", "cat", "clone", "constant_pad_nd", "copy", "cumsum", "detach",
    "diagonal", "embedding", "expand", "fill", "flip", "full", "full_like", "gather", "index", "index_add",
    "index_put", "index_select", "lift_fresh_copy", "masked_fill", "mean", "neg", "new_full", "new_zeros", "permute",
    "repeat", "roll", "rsub", "scalar_tensor", "scatter", "scatter_add", "select", "select_scatter", "slice",
    "slice_scatter", "split", "split_with_sizes", "squeeze", "stack", "sub", "sum", "t", "transpose", "tril", "triu",
    "unbind", "unfold", "unsqueeze", "view", "where", "zeros", "zeros_like",
)
# fmt: on
"""Operators that compute the real part from the real parts only, and the imaginary part likewise."""
_PRODUCTS = ("bmm", "dot", "mm", "mul", "mv")
_SELECTORS = frozenset({"condition", "index", "indices", "mask"})
"""Arguments that are not a term of the result."""
_TERMS = frozenset({"fill_value", "other", "s", "self", "value"})
"""Arguments that may be a number which is a term of the result; others are axes, sizes and factors."""
_TRANSLATED = frozenset({_aten.stft.default})
"""Operators that the exporter translates as a whole."""


def with_real_pairs(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program whose arithmetic is that of real tensors; the program itself if no value in it is complex.

    An operator that this module does not know is kept.

    Args:
        program: A program of torch.export.
    """
    targets = {node.target for node in _nodes(program) if _is_complex_node(node)}
    if not targets:
        return program
    composite = torch.export.default_decompositions()
    inner = {target: composite[target] for target in targets - _TRANSLATED if target in composite}
    # As the exporter does: 0 and 1 are sizes like others.
    with _config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined] # torch adds it at import
        program = program.run_decompositions(inner | _TABLE)
    _join_parts(program.graph_module)
    return program


def _nodes(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op == "call_function")


def _is_complex_node(node: torch.fx.Node) -> bool:
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    return any(_is_complex(value) for value in pytree.tree_leaves(values))


def _is_complex(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_complex()
    return isinstance(value, complex) or (isinstance(value, torch.dtype) and value in _REAL)


def _real(value: Any) -> Any:  # noqa: ANN401 - an argument of any operator
    """Return the real part of a term."""
    if isinstance(value, torch.Tensor):
        return value.real if value.is_complex() else value
    return value.real if isinstance(value, complex) else value


def _imaginary(value: Any) -> Any:  # noqa: ANN401
    """Return the imaginary part of a term, which is 0 for real ones."""
    if isinstance(value, torch.Tensor):
        return value.imag if value.is_complex() else torch.zeros_like(value)
    return value.imag if isinstance(value, complex) else 0


def _parts(value: Any) -> tuple[Any, Any]:  # noqa: ANN401
    return _real(value), _imaginary(value)


def _linear(operator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Apply an operator to the real parts and to the imaginary parts of its terms."""
    names = [argument.name for argument in operator._schema.arguments]  # noqa: SLF001 - the only access to it

    def apply(part: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        positional = [_term(name, value, part) for name, value in zip(names, args, strict=False)]
        return operator(*positional, **{name: _term(name, value, part) for name, value in kwargs.items()})

    real = apply(_real)
    if kwargs.get("dtype") is not None and kwargs["dtype"] not in _REAL:
        return real
    imaginary = apply(_imaginary)
    if isinstance(real, torch.Tensor):
        return torch.complex(real, imaginary)
    return [torch.complex(*pair) for pair in zip(real, imaginary, strict=True)]


def _term(name: str, value: Any, part: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Return the part of an argument that is a term of the result; others as they are."""
    if name == "dtype":
        return _REAL.get(value, value)
    if name in _SELECTORS:
        return value
    if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
        return [part(each) for each in value]
    return part(value) if isinstance(value, (torch.Tensor, complex)) or name in _TERMS else value


def _ones(operator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    dtype = kwargs.pop("dtype", None)
    real = operator(*(_real(value) for value in args), dtype=_REAL.get(dtype, dtype), **kwargs)
    return real if dtype is not None and dtype not in _REAL else torch.complex(real, torch.zeros_like(real))


def _product(operator: Any, x: Any, y: Any) -> Any:  # noqa: ANN401
    """Multiply; a real factor multiplies both parts."""
    if not _is_complex(x):
        return torch.complex(operator(x, y.real), operator(x, y.imag))
    if not _is_complex(y):
        return torch.complex(operator(x.real, y), operator(x.imag, y))
    (a, b), (c, d) = _parts(x), _parts(y)
    return torch.complex(operator(a, c) - operator(b, d), operator(a, d) + operator(b, c))


def _sum_of_product(product: Any, x: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: ANN401 - the operator's arguments
    return x * beta + product(left, right) * alpha


def _divide(x: Any, y: Any) -> Any:  # noqa: ANN401
    if not _is_complex(y):
        return torch.complex(x.real / y, x.imag / y)
    (a, b), (c, d) = _parts(x), _parts(y)
    square = c * c + d * d
    return torch.complex((a * c + b * d) / square, (b * c - a * d) / square)


def _exponential(x: torch.Tensor) -> torch.Tensor:
    size = torch.exp(x.real)
    return torch.complex(size * torch.cos(x.imag), size * torch.sin(x.imag))


def _for_complex(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Call a decomposition if an argument is complex; otherwise, keep the operator."""
    if any(_is_complex(value) for value in pytree.tree_leaves((args, kwargs))):
        return function(*args, **kwargs)
    return NotImplemented


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decomposition of each overload."""
    by_name: dict[str, Callable[[Any], Callable[..., Any]]] = {
        **dict.fromkeys(_LINEAR, lambda operator: partial(_linear, operator)),
        **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda operator: partial(_ones, operator)),
        **dict.fromkeys(_PRODUCTS, lambda operator: partial(_product, operator)),
        "addmm": lambda _: partial(_sum_of_product, _aten.mm.default),
        "baddbmm": lambda _: partial(_sum_of_product, _aten.bmm.default),
        "div": lambda _: _divide,
        "reciprocal": lambda _: partial(_divide, 1),
        "exp": lambda _: _exponential,
        **dict.fromkeys(
            ("_conj", "_conj_physical", "conj_physical"), lambda _: lambda x: torch.complex(x.real, -x.imag)
        ),
    }
    return {
        overload: partial(_for_complex, make(overload))
        for name, make in by_name.items()
        for overload in _functional(getattr(_aten, name))
    }


def _functional(packet: Any) -> Iterator[Any]:  # noqa: ANN401 - torch does not type it
    """Yield the overloads that do not write to their arguments, round, or read the bytes as another type."""
    for name in packet.overloads():
        overload = getattr(packet, name)
        if not overload._schema.is_mutable and not name.endswith(("_mode", "dtype")):  # noqa: SLF001
            yield overload


_TABLE = _decompositions()


def _join_parts(module: torch.fx.GraphModule) -> None:
    """Use the part itself where a number is created from two parts, and one of them is selected."""
    for node in module.graph.nodes:
        if node.target is not _aten.select.int or node.args[0].target is not _aten.view_as_real.default:
            continue
        number, axis, index = node.args[0].args[0], node.args[1], node.args[2]
        if number.target is not _aten.complex.default or axis not in {-1, number.meta["val"].dim()}:
            continue
        part = number.args[index]
        if str(part.meta["val"].shape) == str(node.meta["val"].shape):  # `complex` broadcasts
            node.replace_all_uses_with(part, delete_user_cb=lambda user: user.op != "output")
    module.graph.eliminate_dead_code()
    module.recompile()
