"""The guide for plug-ins shows the code of the example package that the integration tests install."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tests" / "plugin_package"
BLOCKS = dict(
    re.findall(
        r'^```\w+ title="((?:\w+/)?\w+\.(?:py|toml))"\n(.*?)^```$',
        (ROOT / "docs" / "guides" / "plugins.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


def without_docstrings(code: str) -> str:
    """Return code as a syntax tree without docstrings and comments."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def test_guide_has_an_example_of_each_module() -> None:
    """A module that is added to the package needs a block in the guide."""
    modules = {f"{path.parent.name}/{path.name}" for path in PACKAGE.glob("repogen_example_plugin/*.py")}
    assert BLOCKS.keys() == modules - {"repogen_example_plugin/__init__.py"} | {"pyproject.toml"}


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.endswith(".py")])
def test_code_in_the_guide_is_the_package_s(name: str) -> None:
    """Only docstrings and comments are left out."""
    code = (PACKAGE / name).read_text(encoding="utf-8")
    assert without_docstrings(BLOCKS[name]) == without_docstrings(code)


def test_pyproject_in_the_guide_is_the_package_s() -> None:
    """The order of its tables does not matter."""
    text = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(BLOCKS["pyproject.toml"]) == tomllib.loads(text)
