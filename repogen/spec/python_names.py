"""The names that a Python file defines, read without running it, so that a misspelled callable is reported at once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from repogen.files import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 2_000_000
_DYNAMIC = frozenset({"*", "__getattr__", "globals", "locals", "vars", "setattr", "exec", "eval"})
"""With these, a file can define names that its syntax does not show."""


def parse_code(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file, without running it.

    Raises:
        OSError: It can't be read, or has more than 2 MB.
        SyntaxError: It is not Python.
        ValueError: It has null bytes, or is nested too deeply.
    """
    try:
        return ast.parse(read_bytes(path, _MAX_BYTES), path.name)
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is nested too deeply") from error


def defined_names(path: Path) -> frozenset[str] | None:
    """Return the names at the top level of a Python file; None if only running it can tell.

    Args:
        path: The file. One that is large or empty, has invalid syntax, or can define names while it runs, returns
            None.
    """
    try:
        tree = parse_code(path)
    except (OSError, SyntaxError, ValueError):
        return None
    names = {name for node in ast.walk(tree) for name in _bound_names(node)}
    return None if not names or names & _DYNAMIC else frozenset(names)


def _bound_names(node: ast.AST) -> list[str]:
    """Return the names that a node binds, at whatever level: too many names only delay the error."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).partition(".")[0]]
    return [node.id] if isinstance(node, ast.Name) else []
