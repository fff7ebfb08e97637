"""Describes a callable that returns a model; its file is parsed, not imported."""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from repogen.errors import RepogenError, SpecError, first_line
from repogen.scaffold.description import (
    NO_HINTS,
    Hints,
    ModelDescription,
    flow,
    input_placeholders,
    model_name,
    shape_text,
)
from repogen.spec.models import ModelSpec
from repogen.spec.python_names import parse_code
from repogen.worker.inspection import InspectionJob, inspect
from repogen.worker.requirements import require_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

_GENERIC_NAMES = frozenset(
    {"build", "make", "create", "factory", "model", "get_model", "build_model", "make_model", "load"}
)
_GENERIC_FILES = frozenset({"model", "models", "net", "network", "main"})
_EXAMPLES = "examples"
_MAX_SIZE = 64
"""Assumed maximum of a dim that only the parameters of a function name."""


def describe_callable(module: str, attribute: str, directory: Path, hints: Hints = NO_HINTS) -> ModelDescription:
    """Describe a callable by its parameters, the forward of the class that it returns, and examples.

    With examples, the model is loaded in a process of its own, which finds its inputs. Without, no code is run.

    Args:
        module: ``file.py``, relative to the working directory or to the spec, or ``package.module``.
        attribute: Name of the callable in the module.
        directory: Directory of the new spec.
        hints: Weights, examples and name.

    Raises:
        SpecError: A file or the name does not exist, or the code cannot be parsed.
    """
    file = _module_file(module, directory)
    try:
        tree = parse_code(file)
    except SyntaxError as error:
        place = file if error.lineno is None else f"{file}:{error.lineno}"
        raise SpecError(f"{place}: {error.msg}", "correct the file", code="init.from") from error
    except (OSError, ValueError) as error:
        raise SpecError(f"{file} cannot be parsed: {error}", "correct the file", code="init.from") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    name = attribute.partition(".")[0]
    other_names = _bound_names(tree)
    if name not in {*classes, *functions, *other_names} and "*" not in other_names:
        defined = ", ".join([*functions, *classes]) or "nothing"
        raise SpecError(f"{file} has no {name!r}", f"it defines: {defined}", code="init.from")
    if class_name := _class_of_instance(name, tree, classes):
        raise SpecError(
            f"{name} in {file} is a {class_name}, not a callable that returns one",
            f"write a function, such as `def build(): return {name}`, or name the class: --from {module}:{class_name}",
            code="init.from",
        )
    relative = os.path.relpath(file, directory) if module.endswith(".py") else module
    required = _required_names(functions.get(name) or _method(classes.get(name), "__init__"))
    forward = _method(classes.get(_class_of(name, functions, classes)), "forward")
    has_examples = _EXAMPLES in functions and name != _EXAMPLES
    examples = f"{relative}:{_EXAMPLES}" if has_examples else ""
    if hints.examples is not None:
        examples = relative_reference(hints.examples, directory)
    weights = {} if hints.weights is None else {"weights": _relative_file(hints.weights, directory)}
    source: dict[str, object] = {"factory": f"{relative}:{attribute}", **weights}
    dims = _example_dims(examples, directory)
    signature = f"forward({', '.join(_parameters(forward))})" if forward else "forward is not defined in the file"
    has_dict = bool(_dict_keys(forward))
    description = ModelDescription(
        hints.name or model_name(_name_of(name, file.stem, _class_of(name, functions, classes))),
        source,
        (f"{attribute} is in {relative}; {signature}.",),
        (*_kwargs_lines(required), *_input_lines(forward, examples)),
        _missing_note(required, "" if examples else "examples:" if has_dict else "inputs: and dims:"),
    )
    return _inspected(description, examples, directory, dims) if examples and not required else description


def _name_of(attribute: str, stem: str, class_name: str) -> str:
    """Return the name that says most: of the callable, of its file, or of the class that it returns."""
    if attribute.lower() not in _GENERIC_NAMES:
        return attribute
    return stem if stem.lower() not in _GENERIC_FILES else class_name or stem


def _example_dims(examples: str, directory: Path) -> dict[str, dict[str, int]]:
    """Return a dim for each parameter of the function of examples that is neither the batch nor the seed."""
    file, _, attribute = examples.rpartition(":")
    try:
        tree = parse_code(_module_file(file, directory)) if file else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, SpecError):
        return {}
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == attribute), None)
    names = _required_names(function)
    first = names[:1] if "batch" not in names else []  # it gets the size of the batch, whatever its name
    return {name: {"min": 1, "max": _MAX_SIZE} for name in names if name not in {"batch", "seed", *first}}


def _inspected(
    description: ModelDescription, examples: str, directory: Path, dims: dict[str, dict[str, int]]
) -> ModelDescription:
    """Return a description with the inputs that loading the model shows; with the reason if it cannot be loaded."""
    source = {"kind": "torch", **description.source}
    guessed = f"CHECK the bounds of {', '.join(dims)}: they are guesses." if dims else ""
    try:
        require_installed([])
        model = ModelSpec.model_validate({"source": source, "examples": examples, "dims": dims})
        inspection = inspect(InspectionJob(model, directory.resolve()))
    except (RepogenError, ValidationError) as error:
        comments = [f"CHECK: the model could not be loaded with these examples: {first_line(error)}"]
        if isinstance(error, RepogenError) and error.hint:
            comments.append(f"Hint: {first_line(RepogenError(error.hint))}")
        lines = (f"dims: {flow(dims)} # {guessed}",) if dims else ()
        return replace(
            description,
            comments=(*description.comments, *comments),
            keys=(*description.keys, *lines),
            missing="correct what CHECK reports",
        )
    inputs = [
        f"  {flow(t.name)}: {{dtype: {t.dtype}, shape: {shape_text(t.shape)}}}" for t in inspection.signature.inputs
    ]
    outputs = (f"  out {flow(t.name)}: {t.dtype}, {_dims_text(len(t.shape))}" for t in inspection.signature.outputs)
    bounds = {name: {"min": low, "max": high} for name, (low, high) in inspection.dims.items()}
    if bounds and ":" not in examples:
        guessed = "CHECK batch: the examples have one size, but the model accepts other sizes of their first axis."
    return replace(
        description,
        comments=(*description.comments, "Outputs:", *outputs, *([guessed] if guessed else [])),
        keys=(
            f"examples: {flow(examples)}",
            "inputs: # derived from the examples; names are dynamic dims",
            *inputs,
            *([f"dims: {flow(bounds)}"] if bounds else []),
        ),
    )


def _dims_text(number: int) -> str:
    return "1 dim" if number == 1 else f"{number} dims"


def _relative_file(path: str, directory: Path) -> str:
    """Return a file that the user named, relative to the spec.

    Raises:
        SpecError: It does not exist.
    """
    if not Path(path).is_file():
        raise SpecError(f"file not found: {path}", "paths are relative to the working directory", code="init.from")
    return os.path.relpath(path, directory)


def relative_reference(reference: str, directory: Path) -> str:
    """Return a file, ``file.py:callable`` or ``package.module:callable``, relative to the spec."""
    file, separator, attribute = reference.rpartition(":")
    if not separator:
        return _relative_file(reference, directory)
    return f"{_relative_file(file, directory)}:{attribute}" if file.endswith(".py") else reference


def model_callables(file: Path) -> tuple[str, ...]:
    """Return the names of a file's public functions and classes, at most five; none if it cannot be parsed."""
    try:
        tree = parse_code(file)
    except (OSError, SyntaxError, ValueError):
        return ()
    definitions = (node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return tuple(islice((name for name in definitions if not name.startswith("_") and name != _EXAMPLES), 5))


def _module_file(module: str, directory: Path) -> Path:
    if module.endswith(".py"):
        for file in (Path(module), directory / module):
            if file.is_file():
                return file
        raise SpecError(f"file not found: {module}", "correct the path", code="init.from")
    first = str(directory.resolve())
    search_path = [first, str(Path.cwd()), *sys.path]
    origin = None
    for part in module.split("."):  # finds a module without importing its packages
        spec = importlib.machinery.PathFinder.find_spec(part, search_path)
        if spec is None:
            raise SpecError(f"module not found: {module}", f"searched {first} and sys.path", code="init.from")
        search_path, origin = list(spec.submodule_search_locations or ()), spec.origin
    if origin is None or not origin.endswith(".py"):
        raise SpecError(
            f"{module} has no Python source code", "write a .py file that returns the model", code="init.from"
        )
    return Path(origin)


def _bound_names(tree: ast.Module) -> set[str]:
    """Return the names that a module binds by assignments and imports."""
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    imports = [a for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for a in node.names]
    return {t.id for t in targets if isinstance(t, ast.Name)} | {alias.asname or alias.name for alias in imports}


def _class_of_instance(name: str, tree: ast.Module, classes: dict[str, ast.ClassDef]) -> str:
    """Return the name of the module class whose instance is assigned to a name, as in ``MODEL = Net()``."""
    assignments = (node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    for node in assignments:
        if any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            callee = getattr(node.value, "func", None)
            if isinstance(callee, ast.Name) and _method(classes.get(callee.id), "forward"):
                return callee.id
    return ""


def _class_of(name: str, functions: dict[str, ast.FunctionDef], classes: dict[str, ast.ClassDef]) -> str:
    """Return the name of the class that a callable returns: itself, or the first module class that it calls."""
    if name in classes or name not in functions:
        return name
    calls = (node.func for node in ast.walk(functions[name]) if isinstance(node, ast.Call))
    callees = (function.id for function in calls if isinstance(function, ast.Name))
    return next((callee for callee in callees if callee in classes and _method(classes[callee], "forward")), "")


def _method(node: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    children = node.body if node else ()
    return next((child for child in children if isinstance(child, ast.FunctionDef) and child.name == name), None)


def _parameters(function: ast.FunctionDef | None, *, required: bool = False) -> list[str]:
    """Return the names of a function's parameters except self; with ``required``, only those without a default."""
    if function is None:
        return []
    positional = [*function.args.posonlyargs, *function.args.args]
    count = len(positional) - len(function.args.defaults) if required else len(positional)
    keyword = [
        argument
        for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is None or not required
    ]
    return [argument.arg for argument in (*positional[:count], *keyword) if argument.arg != "self"]


def _required_names(function: ast.FunctionDef | None) -> list[str]:
    return _parameters(function, required=True)


def _kwargs_lines(required: list[str]) -> Iterator[str]:
    if required:
        yield f"# Fill in the factory's arguments, in source: kwargs: {{{', '.join(f'{n}: …' for n in required)}}}"


def _input_lines(forward: ast.FunctionDef | None, examples: str) -> Iterator[str]:
    if examples:
        yield f"examples: {flow(examples)} # defines the inputs; two calls with different sizes show the dynamic dims"
        return
    if keys := _dict_keys(forward):
        name = _required_names(forward)[0]
        values = ", ".join(f'"{key}": …' for key in keys)
        yield f"# forward accepts a dict of tensors, {name}. Write a function that returns one for a batch of any size:"
        yield f'# def examples(batch): return {{"{name}": {{{values}}}}}'
        yield "# and name it here: examples: models.py:examples"
        return
    yield from input_placeholders(_required_names(forward) or ["x"])
    yield "# Or write a function examples(batch) that returns forward's arguments, and: examples: models.py:examples"


def _dict_keys(forward: ast.FunctionDef | None) -> tuple[str, ...]:
    """Return the keys that forward reads from its only required parameter, if that is a dict; none if it is not."""
    names = _required_names(forward)
    if forward is None or len(names) != 1:
        return ()
    keys = (
        node.slice.value
        for node in ast.walk(forward)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == names[0]
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    )
    return tuple(dict.fromkeys(keys))


def _missing_note(required: list[str], keys: str) -> str:
    gaps = [f"source.kwargs ({', '.join(required)})"] if required else []
    if keys:
        gaps.append(keys)
    return f"fill in {' and '.join(gaps)}" if gaps else ""
