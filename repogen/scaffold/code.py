"""A callable that makes a model, for a spec: its file is parsed, not imported."""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.scaffold.description import Found, flow, model_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAKERS = frozenset({"build", "make", "create", "factory", "model", "get_model", "build_model", "make_model", "load"})
_EXAMPLES = "examples"


def describe_callable(module: str, attribute: str, directory: Path) -> Found:
    """Find a callable's code, the forward of what it returns, and examples beside it.

    Args:
        module: ``file.py``, as seen from here or from the spec, or ``package.module``.
        attribute: Name in it.
        directory: Where the spec is to be.

    Raises:
        SpecError: There is no such file or name, or it can't be parsed.
    """
    file = _file(module, directory)
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise SpecError(f"{file} can't be parsed: {error}", "correct it", code="init.from") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    name = attribute.partition(".")[0]
    others = _assigned(tree)
    if name not in {*classes, *functions, *others} and "*" not in others:
        known = ", ".join([*functions, *classes]) or "nothing"
        raise SpecError(f"{file} has no {name!r}", f"it defines: {known}", code="init.from")
    shown = os.path.relpath(file, directory) if module.endswith(".py") else module
    source: dict[str, object] = {"factory": f"{shown}:{attribute}"}
    required = _required(functions.get(name) or _method(classes.get(name), "__init__"))
    forward = _method(classes.get(_class_of(name, functions, classes)), "forward")
    has_examples = _EXAMPLES in functions and name != _EXAMPLES
    keys = [*_kwargs_lines(required), *_input_lines(forward, f"{shown}:{_EXAMPLES}" if has_examples else "")]
    missing = _missing(required, has_examples=has_examples)
    signature = f"forward({', '.join(_parameters(forward))})" if forward else "its forward was not found in the file"
    title = file.stem if name.lower() in _MAKERS else name
    return Found(model_name(title), source, (f"{attribute} is in {shown}; {signature}.",), tuple(keys), missing)


def _file(module: str, directory: Path) -> Path:
    if module.endswith(".py"):
        for place in (Path(module), directory / module):
            if place.is_file():
                return place
        raise SpecError(f"there is no file {module}", "correct the path", code="init.from")
    places = [str(directory.resolve()), str(Path.cwd()), *sys.path]
    origin = None
    for part in module.split("."):  # finds a module without importing its packages
        spec = importlib.machinery.PathFinder.find_spec(part, places)
        if spec is None:
            raise SpecError(f"there is no module {module}", f"looked in {places[0]} and on sys.path", code="init.from")
        places, origin = list(spec.submodule_search_locations or ()), spec.origin
    if origin is None or not origin.endswith(".py"):
        raise SpecError(f"{module} has no Python code to read", "write a file that makes the model", code="init.from")
    return Path(origin)


def _assigned(tree: ast.Module) -> set[str]:
    """Return the names that a module binds in other ways: by assignments and imports."""
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    imported = [a for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for a in node.names]
    return {t.id for t in targets if isinstance(t, ast.Name)} | {alias.asname or alias.name for alias in imported}


def _class_of(name: str, functions: dict[str, ast.FunctionDef], classes: dict[str, ast.ClassDef]) -> str:
    """Return the name of the class that a callable makes: itself, or the first that a function calls."""
    if name in classes or name not in functions:
        return name
    calls = (node.func for node in ast.walk(functions[name]) if isinstance(node, ast.Call))
    called = (function.id for function in calls if isinstance(function, ast.Name))
    return next((kind for kind in called if kind in classes and _method(classes[kind], "forward")), "")


def _method(node: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    found: Iterator[ast.FunctionDef] = (
        child for child in (node.body if node else ()) if isinstance(child, ast.FunctionDef) and child.name == name
    )
    return next(found, None)


def _parameters(function: ast.FunctionDef | None, *, required: bool = False) -> list[str]:
    """Return the names of a function's parameters without self; only those without a default when asked."""
    if function is None:
        return []
    positional = [*function.args.posonlyargs, *function.args.args]
    without = len(positional) - len(function.args.defaults) if required else len(positional)
    keyword = [
        argument
        for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is None or not required
    ]
    return [argument.arg for argument in (*positional[:without], *keyword) if argument.arg != "self"]


def _required(function: ast.FunctionDef | None) -> list[str]:
    return _parameters(function, required=True)


def _kwargs_lines(required: list[str]) -> Iterator[str]:
    if required:
        yield f"# FILL IN what the factory needs, in source: kwargs: {{{', '.join(f'{n}: …' for n in required)}}}"


def _input_lines(forward: ast.FunctionDef | None, examples: str) -> Iterator[str]:
    if examples:
        yield f"examples: {flow(examples)} # gives the inputs; dynamic dims are found by asking it for two sizes"
        return
    yield "# FILL IN what forward is given, with true dtypes and shapes; words are dynamic dims:"
    yield "# inputs:"
    for name in _required(forward) or ["x"]:
        yield f"#   {name}: {{dtype: float32, shape: [batch, 3]}}"
    yield "# dims: {batch: {min: 1, max: 32}}"
    yield "# Integers need a range as well: {dtype: int64, shape: [batch, sequence], range: [0, 30521]}"
    yield "# Or write a function examples(batch) that returns forward's arguments, and: examples: models.py:examples"


def _missing(required: list[str], *, has_examples: bool) -> str:
    wanted = [f"source.kwargs ({', '.join(required)})"] if required else []
    if not has_examples:
        wanted.append("inputs: and dims:")
    return f"fill in {' and '.join(wanted)}" if wanted else ""
