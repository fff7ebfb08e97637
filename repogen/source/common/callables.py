"""Imports what a spec names as ``file.py:callable`` or ``package.module:callable``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from repogen.errors import SourceError

UserCallable: TypeAlias = Callable[..., object]
# What the user's code may raise: Ctrl-C never reaches the worker, so even KeyboardInterrupt is the code's own.
RAISED = (Exception, SystemExit, KeyboardInterrupt)
_MOST_LETTERS = 1000


def import_callable(reference: str, root: Path) -> UserCallable:
    """Import a user's callable.

    Args:
        reference: ``file.py:callable`` (relative to ``root``) or ``package.module:callable``.
        root: Directory of the spec; it is put on ``sys.path``, as is the directory of the file.

    Raises:
        SourceError: The module fails to import, or has no such callable.
    """
    found = import_object(reference, root)
    if not callable(found):
        raise SourceError(
            f"{reference!r} is a {type(found).__name__}, not a callable",
            "name a function or class that returns the model",
            code="source.not-callable",
            where=reference,
        )
    return found


def import_object(reference: str, root: Path) -> object:
    """Import anything that a module of the user holds; see ``import_callable``.

    Raises:
        SourceError: The module fails to import, or has no such name.
    """
    module_name, _, attribute = reference.rpartition(":")
    sys.dont_write_bytecode = True
    try:
        module = _import_file(root / module_name) if module_name.endswith(".py") else _import_module(module_name, root)
    except SourceError:
        raise
    except RAISED as error:
        raise user_error(error, f"importing {reference!r} failed", root) from error
    try:
        found: object = functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_"))[:12])
        raise SourceError(
            f"{module_name} has no {attribute!r}",
            f"it defines: {names or 'nothing'}",
            code="source.callable-missing",
            where=reference,
        ) from error
    return found


def _import_file(path: Path) -> object:
    path = path.resolve()
    if not path.is_file():
        raise SourceError(f"there is no file {path.name}", "correct the path in the spec", code="source.no-file")
    name = path.stem
    while name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return sys.modules[name]  # the factory and the examples may share a file: it runs once
        name += "_"  # a user's types.py must not take the place of the standard library's
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
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
    sys.path.insert(0, str(root.resolve()))
    return importlib.import_module(name)


def user_error(error: BaseException, what: str, root: Path, code: str = "source.user-code") -> SourceError:
    """Return a SourceError for an exception of the user's code, placed at its innermost line that is the user's.

    Args:
        error: What the code raised.
        what: What repogen was doing.
        root: Directory of the spec; frames below it are the user's.
        code: Code of the error.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = Path(__file__).resolve().parents[2]
    named = [f for f in frames if not f.filename.startswith("<")]  # <frozen os> is nobody's to mend
    theirs = [f for f in named if not Path(f.filename).is_relative_to(own) and "importlib" not in f.filename]
    below = [f for f in theirs if Path(f.filename).resolve().is_relative_to(root.resolve()) and _is_local(f.filename)]
    # PyTorch's own lines tell nobody what to change.
    candidates = below or [f for f in theirs if "/site-packages/torch/" not in f.filename]
    where = f"{_shown(Path(candidates[-1].filename), root)}:{candidates[-1].lineno}" if candidates else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{_shown(Path(error.filename), root)}:{error.lineno}"
    kind = "called sys.exit" if isinstance(error, SystemExit) else type(error).__name__
    text = f"{what}: {kind}: {_said(error)}".rstrip(": ")
    hint = "fix it there"
    if isinstance(error, ModuleNotFoundError):
        hint = f"install {error.name!r} in this environment, or put its directory beside the spec"
    return SourceError(text, hint, code=code, where=where, details="".join(traceback.format_exception(error)))


def _said(error: BaseException) -> str:
    """Return an exception's text, not all of it when it is long."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - the text is made by the user's code, too
        return f"(its text can't be had: {type(failure).__name__})"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _is_local(filename: str) -> bool:
    return "site-packages" not in filename


def _shown(path: Path, root: Path) -> str:
    try:
        return str(path.resolve().relative_to(root.resolve()))
    except ValueError:
        return str(path).rpartition("/site-packages/")[2] if "/site-packages/" in str(path) else path.name
