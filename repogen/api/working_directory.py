"""The spec and the repository of calls and commands that name none: those of the working directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from repogen.errors import SpecError
from repogen.files import has_trusted_owner

SPEC, REPOSITORY = "repogen.yaml", "model_repository"
"""The defaults of parameters. They are strings, so a ``Path`` with the same name is one that the caller passed."""

_Value = TypeVar("_Value")


def own_default(value: _Value) -> _Value:
    """Return the value of a parameter for a spec or a repository.

    Raises:
        SpecError: It is the default, and belongs to another user.
    """
    if isinstance(value, str) and value in {SPEC, REPOSITORY}:
        require_own(Path(value))
    return value


def require_own(path: Path) -> Path:
    """Return a path of the working directory that the user did not name.

    Raises:
        SpecError: It belongs to another user, who may have created it in a directory such as ``/tmp``.
    """
    try:
        is_own = not os.path.lexists(path) or has_trusted_owner(path, Path())
    except OSError:  # the command reports it
        return path
    if is_own:
        return path
    raise SpecError(
        f"{path} in the working directory belongs to another user, and the command would use its code and its settings",
        "pass its path if you trust it, or change to another directory",
        code="working-directory.foreign",
    )
