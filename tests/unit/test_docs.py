"""Every error code and rule has a page, and every page has a code or rule; examples use options and keys that exist."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import jsonschema
import pytest
import yaml

from repogen.cli.group import main as command_line
from repogen.explain import codes as explained_codes
from repogen.spec.schema import json_schema
from repogen.triton_config.rules.findings import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[2] / "repogen"
ROOT = PACKAGE.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    (*DOCS.rglob("*.md"), *(PACKAGE / "explain").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md"))
)
PAGE_NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
_YAML_BLOCK = re.compile(r"^( *)```ya?ml[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"\brepogen ([a-z][a-z-]*(?: [^`\n|]*)?)")
_CODE = re.compile(r"[a-z][a-z-]*(?:\.[a-z-]+)?")
_RECORDS = {"ErrorRecord"}
_NAMES = {"code", "default_code"}
_COMPOSED = re.compile(r"[a-z][a-z-]*\.")


@cache
def source_trees() -> tuple[ast.Module, ...]:
    """Return the syntax tree of each module."""
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py")))


def reported_codes() -> set[str]:
    """Return the error codes in the source: ``code=`` arguments, default codes of classes, and error records.

    Arguments may name a constant of a module, or a variable ``code``.
    """
    values = [constants().get(getattr(value, "id", ""), value) for tree in source_trees() for value in _codes_of(tree)]
    return {code for value in values for code in _texts(value) if _CODE.fullmatch(code)}


@cache
def constants() -> dict[str, ast.expr]:
    """Return the values that are assigned to names at the top level of modules."""
    return {
        target.id: node.value
        for tree in source_trees()
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _codes_of(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if isinstance(node.func, ast.Name) and node.func.id in _RECORDS:
                values += node.args[:1]
            yield from values
        elif isinstance(node, ast.Assign):
            yield from _assigned_codes(node)


def _assigned_codes(node: ast.Assign) -> Iterator[ast.expr]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        else:
            pairs = [(target, node.value)]
        yield from (value for name, value in pairs if getattr(name, "id", "") in _NAMES)


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from _texts(value.body)
        yield from _texts(value.orelse)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def test_every_code_has_a_page() -> None:
    """``repogen explain CODE`` works for every code that an error has."""
    assert reported_codes() - set(explained_codes()) == set()


def test_no_code_is_composed() -> None:
    """The test above does not find a code that is composed from parts, such as ``f"promotion.{name}"``."""
    values = [value for tree in source_trees() for value in _codes_of(tree) if isinstance(value, ast.JoinedStr)]
    first_parts = [getattr(value.values[0], "value", "") for value in values]
    assert [part for part in first_parts if isinstance(part, str) and _COMPOSED.match(part)] == []


def test_every_code_that_the_source_compares_exists() -> None:
    """A condition such as ``error.code in {…}`` would never hold for a code that no error has."""
    compared = {
        constant.value
        for tree in source_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "code"
        for comparator in node.comparators
        for constant in ast.walk(constants().get(getattr(comparator, "id", ""), comparator))
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }
    assert "server.remote" in compared
    assert compared - set(explained_codes()) - {""} == set()


def test_every_rule_has_a_page() -> None:
    """Every rule has a page, and every rule page has a rule."""
    assert {code for code in explained_codes() if code.startswith("RG")} == set(RULES)


def test_every_page_has_a_code() -> None:
    """Every page's code occurs in the source, including computed codes and codes of other processes."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    unknown = {
        code for code in explained_codes() if code not in RULES and not re.search(rf"[\"'`]{re.escape(code)}\b", source)
    }
    assert unknown == set()


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_yaml_examples_have_valid_keys(page: Path) -> None:
    """An example can be parsed, and a spec, or the part of one that describes a model, has valid keys and values.

    It may lack required keys.
    """
    schema = json_schema()
    keys = set(schema["properties"])  # type: ignore[call-overload] # the properties of an object are a dict
    for match in _YAML_BLOCK.finditer(page.read_text(encoding="utf-8")):
        example = yaml.safe_load(textwrap.dedent(match[2]))
        if not isinstance(example, dict) or page.name == "plugins.md":  # plug-ins add keys
            continue
        spec = example if keys & set(example) else {"models": {"net": example}}
        if not keys & set(example) and not {"source", "inputs", "triton", "optimize", "examples"} & set(example):
            continue
        problems = jsonschema.Draft202012Validator(schema).iter_errors({"models": {"net": {}}, **spec})
        assert [problem.message for problem in problems if problem.validator != "required"] == []


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_commands_have_only_options_that_exist(page: Path) -> None:
    """Each ``repogen COMMAND … --option`` of a page is an option of that command."""
    for match in _COMMAND.finditer(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        command, words = command_of(match[1].partition("#")[0].split())
        options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        used = {re.split(r"[^a-z0-9-]", word.lstrip("`[("))[0] for word in words if word.lstrip("`[(").startswith("--")}
        assert used - options - {"--help"} == set(), match[0]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that words of a command line name, and the words after it."""
    command: click.Command = command_line
    while words and isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), words[0])
        if inner is None:
            break
        command, words = inner, words[1:]
    return command, [] if command is command_line else words


def test_readme_is_short() -> None:
    """Reference material is on the site."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
