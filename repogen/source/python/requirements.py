"""What Python code requires, against what is installed here and what it imports."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from repogen.errors import SourceError
from repogen.source.python.backend_utils import MODULE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.spec.sources import PythonSource

_GIVEN = frozenset({"numpy", MODULE, "c_python_backend_utils"})
"""What Triton's Python backend has."""


def check_installed(requirements: Sequence[str]) -> None:
    """Hold pinned requirements against what the code is run with here.

    Raises:
        SourceError: One is not installed, or in another version: what is proved would not be what is served.
    """
    wrong = []
    for requirement in requirements:
        name, _, version = requirement.partition("==")
        name = name.partition("[")[0]
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        if found != version:
            wrong.append((f"{name} is {found} here, and requirements: say {version}", requirement))
    if wrong:
        raise SourceError(
            "; ".join(what for what, _ in wrong),
            f"pip install {' '.join(requirement for _, requirement in wrong)}, or pin what is installed",
            code="source.requirements",
        )


def unlisted_imports(path: Path, source: PythonSource) -> Iterator[str]:
    """Yield a note where code imports what neither Triton has nor ``requirements`` list.

    Args:
        path: The code.
        source: Its spec.
    """
    given = {*_GIVEN, *sys.stdlib_module_names, *(Path(file).stem for file in source.data)}
    listed = {canonicalize_name(line.partition("==")[0].partition("[")[0]) for line in source.requirements}
    owners = importlib.metadata.packages_distributions()
    for name in sorted(_imported(path) - given):
        if not {canonicalize_name(owner) for owner in owners.get(name, ())} & listed:
            yield f"{source.path} imports {name}, which requirements: does not list: the server must have it"


def _imported(path: Path) -> set[str]:
    """Return the top packages that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
