"""Imports user code that a spec references as ``file.py:callable`` or ``package.module:callable``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from repogen.errors import RepogenError, SourceError
from repogen.source.common.search_path import SourceLoader, add_to_search_path, own_file

UserCallable: TypeAlias = Callable[..., object]
# What user code may raise. Ctrl-C does not reach the worker, so a KeyboardInterrupt also comes from the code.
RAISED = (Exception, SystemExit, KeyboardInterrupt)
_MAX_TEXT = 1000
_CAUSE_IN_SCRIPT = re.compile(
    r"TorchScript interpreter\.\n(?:.*<--- HERE\n)?.*?^(?:builtins\.)?([A-Za-z_][\w.]*): (.*)", re.DOTALL | re.MULTILINE
)
"""The type and the text of an exception in TorchScript, which follow a traceback."""


def import_callable(reference: str, root: Path) -> UserCallable:
    """Import a callable of the user.

    Args:
        reference: ``file.py:callable`` (relative to ``root``) or ``package.module:callable``.
        root: Directory of the spec. It is added to ``sys.path``, and so is the directory of the file.

    Raises:
        SourceError: The module fails to import, or does not define the callable; or another user could replace it.
        SpecError: A symlink of another user leads to the file.
    """
    imported = import_object(reference, root)
    if not callable(imported):
        raise SourceError(
            f"{reference!r} is a {type(imported).__name__}, not a callable",
            "specify a function or class that returns the model",
            code="source.not-callable",
            where=reference,
        )
    return imported


def import_object(reference: str, root: Path) -> object:
    """Import any attribute of a user's module; see ``import_callable``.

    Raises:
        SourceError: The module fails to import, or does not define the name.
    """
    module_name, _, attribute = reference.rpartition(":")
    sys.dont_write_bytecode = True
    try:
        module = (
            _import_file(root / module_name, root) if module_name.endswith(".py") else _import_module(module_name, root)
        )
    except RepogenError:
        raise
    except RAISED as error:
        raise user_error(error, f"importing {reference!r} failed", root) from error
    try:
        imported: object = functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_"))[:12])
        raise SourceError(
            f"{module_name} has no {attribute!r}",
            f"it defines: {names or 'nothing'}",
            code="source.callable-missing",
            where=reference,
        ) from error
    return imported


def _import_file(path: Path, root: Path) -> object:
    path = own_file(path, root)
    if not path.is_file():
        raise SourceError(f"file not found: {path.name}", "correct the path in the spec", code="source.no-file")
    name = path.stem
    while name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return sys.modules[name]  # run a file once, even if the factory and the examples share it
        name += "_"  # a user's types.py must not replace the standard library's module
    add_to_search_path(path.parent)
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceLoader(name, str(path)))
    if spec is None or spec.loader is None:
        raise SourceError(f"{path.name} is not a Python file", code="source.not-python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str, root: Path) -> object:
    add_to_search_path(root.resolve())
    return importlib.import_module(name)


def user_error(error: BaseException, what: str, root: Path, code: str = "source.user-code") -> SourceError:
    """Return a SourceError for an exception in user code, located at the innermost line of user code.

    Args:
        error: The exception.
        what: What failed, for the message.
        root: Directory of the spec; files below it are user code.
        code: Error code.
    """
    frames = traceback.extract_tb(error.__traceback__)
    repogen = Path(__file__).resolve().parents[2]
    files = [f for f in frames if not f.filename.startswith("<")]  # without <frozen os> and the like
    foreign = [f for f in files if not Path(f.filename).is_relative_to(repogen) and "importlib" not in f.filename]
    local = [f for f in foreign if Path(f.filename).resolve().is_relative_to(root.resolve()) and _is_local(f.filename)]
    # A line of PyTorch does not help to find the cause.
    candidates = local or [f for f in foreign if "/site-packages/torch/" not in f.filename]
    where = f"{_display_path(Path(candidates[-1].filename), root)}:{candidates[-1].lineno}" if candidates else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{_display_path(Path(error.filename), root)}:{error.lineno}"
    text = f"{what}: {_description(error)}".rstrip(": ")
    module_name = error.name if isinstance(error, ModuleNotFoundError) else None
    hint = f"install {module_name!r} in this environment, or put its directory next to the spec" if module_name else ""
    return SourceError(text, hint, code=code, where=where, details="".join(traceback.format_exception(error)))


def _description(error: BaseException) -> str:
    """Return the type and the text of an exception, shortened if it is long, and without TorchScript's traceback."""
    kind = "called sys.exit" if isinstance(error, SystemExit) else type(error).__name__
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - user code also creates the text
        return f"{kind}: (no message: str() raised {type(failure).__name__})"
    if cause := _CAUSE_IN_SCRIPT.search(text):
        kind, text = cause[1], cause[2].strip()
    return f"{kind}: {text}" if len(text) <= _MAX_TEXT else f"{kind}: {text[:_MAX_TEXT]}…"


def _is_local(filename: str) -> bool:
    return "site-packages" not in filename


def _display_path(path: Path, root: Path) -> str:
    try:
        return str(path.resolve().relative_to(root.resolve()))
    except ValueError:
        return str(path).rpartition("/site-packages/")[2] if "/site-packages/" in str(path) else path.name
