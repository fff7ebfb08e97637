"""What an export takes for granted of sizes: a branch on x.shape is frozen, and holds for some sizes only.

``torch.onnx.export`` asks torch.export to put such conditions off to runtime assertions, and then leaves them out of
the graph. Here they are read, and the sizes found at which one does not hold: parity is measured there.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy  # type: ignore[import-untyped] # it has no types
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.source import DimRange
    from repogen.artifacts.tensors import Signature

DOUBTS = "repogen.doubts"
"""Key of the sizes in ``ir.Model.meta``."""

_MOST_TRIED = 300
_MOST_KEPT = 2
"""Sizes that are kept of one condition: a multiple of 2 does not hold at half of all."""


@contextmanager
def noted_programs() -> Iterator[list[torch.export.ExportedProgram]]:
    """Collect what torch.export makes within the block."""
    made: list[torch.export.ExportedProgram] = []
    original = torch.export.export

    def export(*args: Any, **kwargs: Any) -> torch.export.ExportedProgram:  # noqa: ANN401 - torch's own signature
        program = original(*args, **kwargs)
        made.append(program)
        return program

    torch.export.export = export
    try:
        yield made
    finally:
        torch.export.export = original


def doubts_of(
    program: torch.export.ExportedProgram, signature: Signature, dims: Mapping[str, DimRange]
) -> list[dict[str, int]]:
    """Return sizes of all dims at which a condition that the program takes for granted does not hold.

    Args:
        program: As torch.export made it.
        signature: Its inputs, in order.
        dims: Their dims.
    """
    symbols = _symbols(program, signature)
    example = {name: dim.example for name, dim in dims.items()}
    found: list[dict[str, int]] = []
    for condition in _conditions(program):
        kept = 0
        for name in sorted({symbols[s] for s in condition.free_symbols if s in symbols}):
            for size in sizes_around(dims[name], (int(number) for number in condition.atoms(sympy.Integer))):
                sizes = {**example, name: size}
                if kept < _MOST_KEPT and _fails(condition, symbols, sizes):
                    kept += 1
                    found.append(sizes)
    return found


def sizes_around(dim: DimRange, numbers: Iterator[int]) -> list[int]:
    """Return sizes of a dim worth a try: all where they are few, else its bounds and those next to some numbers."""
    if dim.max - dim.min < _MOST_TRIED:
        return list(range(dim.min, dim.max + 1))
    near = {number + step for number in numbers for step in (-1, 0, 1)}
    return sorted(size for size in {dim.min, dim.max, *near} if dim.min <= size <= dim.max)


def _symbols(program: torch.export.ExportedProgram, signature: Signature) -> dict[sympy.Symbol, str]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[sympy.Symbol, str] = {}
    for name, spec in zip(program.graph_signature.user_inputs, signature.inputs, strict=False):
        value = nodes[name].meta.get("val") if isinstance(name, str) else None
        for size, dim in zip(getattr(value, "shape", ()), spec.shape, strict=False):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if isinstance(dim, str) and isinstance(expression, sympy.Symbol):
                found[expression] = dim
    return found


def _conditions(program: torch.export.ExportedProgram) -> Iterator[sympy.Basic]:
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    environment: Any = next((v.fake_mode.shape_env for v in values if hasattr(v, "fake_mode")), None)
    if environment is not None:
        for asserts in environment.deferred_runtime_asserts.values():
            yield from (one.expr for one in asserts)
        yield from (guard.expr for guard in environment.guards)
    for symbol, bounds in program.range_constraints.items():
        yield sympy.Ge(symbol, bounds.lower)
        yield sympy.Le(symbol, bounds.upper)


def _fails(condition: sympy.Basic, symbols: Mapping[sympy.Symbol, str], sizes: Mapping[str, int]) -> bool:
    values = {symbol: sympy.Integer(sizes[dim]) for symbol, dim in symbols.items()}
    return bool(condition.xreplace(values) == sympy.false)
