"""Guards of an exported program: conditions on sizes that the graph depends on, and sizes that violate them.

A branch on ``x.shape`` is frozen by an export and is correct for some sizes only. ``torch.onnx.export`` makes
torch.export defer such conditions to runtime assertions, and then drops the assertions from the graph. This module
reads them from the program and returns sizes that violate them; parity is measured at these sizes.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import sympy  # type: ignore[import-untyped] # it has no types
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from repogen.artifacts.source import DimRange
    from repogen.artifacts.tensors import Signature, Sizes

_MAX_CANDIDATES = 300
_MAX_VIOLATIONS = 2
"""Sizes per condition: "a multiple of 2" is violated by half of all sizes."""


@contextmanager
def recorded_programs(
    change: Callable[[torch.export.ExportedProgram], torch.export.ExportedProgram],
) -> Iterator[list[torch.export.ExportedProgram]]:
    """Record the programs that torch.export creates within the block; its caller gets them changed.

    Args:
        change: Returns the program that is converted.
    """
    programs: list[torch.export.ExportedProgram] = []
    original = torch.export.export

    def export(*args: Any, **kwargs: Any) -> torch.export.ExportedProgram:  # noqa: ANN401 - torch's signature
        program = original(*args, **kwargs)
        programs.append(program)
        return change(program)

    torch.export.export = export
    try:
        yield programs
    finally:
        torch.export.export = original


def guard_violations(
    program: torch.export.ExportedProgram, signature: Signature, dims: Mapping[str, DimRange]
) -> tuple[Sizes, ...]:
    """Return sizes of all dims that violate a condition which the program depends on.

    Args:
        program: The program as torch.export created it.
        signature: Its inputs, in order.
        dims: The symbolic dims by name.
    """
    symbols = _symbols(program, signature)
    example = {name: dim.example for name, dim in dims.items()}
    violations: list[Sizes] = []
    for condition in _conditions(program):
        names = sorted({symbols[symbol] for symbol in condition.free_symbols if symbol in symbols})
        numbers = [int(number) for number in condition.atoms(sympy.Integer)]
        candidates = ({**example, name: size} for name in names for size in candidate_sizes(dims[name], numbers))
        violating = (sizes for sizes in candidates if _is_violated(condition, symbols, sizes))
        violations += islice(violating, _MAX_VIOLATIONS)
    return tuple(violations)


def candidate_sizes(dim: DimRange, numbers: Iterable[int]) -> list[int]:
    """Return all sizes of a small dim, or the bounds of a large dim and the sizes next to some numbers."""
    if dim.max - dim.min < _MAX_CANDIDATES:
        return list(range(dim.min, dim.max + 1))
    near = {number + step for number in numbers for step in (-1, 0, 1)}
    return sorted(size for size in {dim.min, dim.max, *near} if dim.min <= size <= dim.max)


def _symbols(program: torch.export.ExportedProgram, signature: Signature) -> dict[sympy.Symbol, str]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    symbols: dict[sympy.Symbol, str] = {}
    for name, spec in zip(program.graph_signature.user_inputs, signature.inputs, strict=False):
        value = nodes[name].meta.get("val") if isinstance(name, str) else None
        for size, dim in zip(getattr(value, "shape", ()), spec.shape, strict=False):
            expression = getattr(getattr(size, "node", None), "expr", None)
            if isinstance(dim, str) and isinstance(expression, sympy.Symbol):
                symbols[expression] = dim
    return symbols


def _conditions(program: torch.export.ExportedProgram) -> Iterator[sympy.Basic]:
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    environment: Any = next((v.fake_mode.shape_env for v in values if hasattr(v, "fake_mode")), None)
    if environment is not None:
        for asserts in environment.deferred_runtime_asserts.values():
            yield from (assertion.expr for assertion in asserts)
        yield from (guard.expr for guard in environment.guards)
    for symbol, bounds in program.range_constraints.items():
        yield sympy.Ge(symbol, bounds.lower)
        yield sympy.Le(symbol, bounds.upper)


def _is_violated(condition: sympy.Basic, symbols: Mapping[sympy.Symbol, str], sizes: Mapping[str, int]) -> bool:
    values = {symbol: sympy.Integer(sizes[dim]) for symbol, dim in symbols.items()}
    try:
        return bool(condition.xreplace(values) == sympy.false)
    except ZeroDivisionError:  # it divides by another size, such as that of a pooling window
        return True
