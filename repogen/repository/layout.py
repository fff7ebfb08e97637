"""How a model repository lies on disk, and which numbers its version directories take; nothing here writes.

A directory of the repository's root is a model, ``<model>/config.pbtxt`` configures all its versions, and
``<model>/<N>/`` is a version. A version that repogen built also holds ``manifest.json`` and its own config.pbtxt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import PYTHON_FILE, REQUIREMENTS_FILE
from repogen.errors import PublishError
from repogen.repository.decode import malformed

if TYPE_CHECKING:
    from pathlib import Path

_INT64_MAX = 2**63 - 1
_OURS = re.compile(r"[1-9][0-9]*")
# Source: Triton's model_repository_manager reads directory names with std::stoll, which skips white space, takes a
# sign, and stops at the first character that is no digit; re.ASCII keeps other scripts' digits out.
_STOLL = re.compile(r"\s*\+?([0-9]+)", re.ASCII)


def model_dir(repository: Path, name: str) -> Path:
    """Return the directory of model ``name``.

    Raises:
        PublishError: The name would lead out of the repository, or hide the model.
    """
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise PublishError(
            f"{name!r} cannot be a model's directory",
            "Use letters, digits, `_` and `-`.",
            code="publish.model-name",
        )
    return repository / name


def journal_path(model: Path) -> Path:
    """Return where the journal of a model lies while a publish runs."""
    return model.parent / f".repogen.{model.name}.pending.json"


def unserved_dir(repository: Path) -> Path:
    """Return where `repogen sync` keeps models that lost their alias: beside the repository, out of Triton's sight."""
    return repository.with_name(f"{repository.name}.unserved")


def models_of(repository: Path) -> tuple[str, ...]:
    """Return the names of a repository's models, every directory in its root; none when there is no such repository.

    Raises:
        PublishError: It can't be read.
    """
    if not repository.is_dir():
        return ()
    try:
        return tuple(sorted(entry.name for entry in repository.iterdir() if entry.is_dir()))
    except OSError as error:
        raise PublishError(f"{repository} cannot be read: {error.strerror}", code="repository.unreadable") from error


def versions(model: Path) -> list[int]:
    """Return the versions in a model's directory, ascending; none when there is no such directory.

    Only directories named by a positive integer without leading zero count: Triton loads no `01`, and what it makes
    of `2.tmp` is an accident that ``next_version`` steps around.
    """
    if not model.is_dir():
        return []
    named = (entry for entry in model.iterdir() if _OURS.fullmatch(entry.name) and entry.is_dir())
    return sorted(int(entry.name) for entry in named if int(entry.name) <= _INT64_MAX)


def latest_version(model: Path) -> int | None:
    """Return the newest version in a model's directory, None when it has none."""
    return max(versions(model), default=None)


def next_version(model: Path) -> int:
    """Return one more than every number that Triton could read out of a directory's name in the model's directory.

    `2.tmp-abc` is version 2 to Triton; it passes files over, but one named `3` would be in the way of a version 3.

    Raises:
        PublishError: A name holds a number that leaves no 64-bit integer above it.
    """
    newest = 0
    for entry in model.iterdir() if model.is_dir() else ():
        match = (_STOLL.match if entry.is_dir() else _STOLL.fullmatch)(entry.name)
        newest = max(newest, int(match[1]) if match else 0)
    if newest >= _INT64_MAX:
        raise PublishError(
            f"{model.name}: a directory's name holds the number {newest}, which Triton cannot count beyond",
            f"Move it out of {model}: one name that overflows 64 bits brings the whole server down.",
            code="publish.version-overflow",
        )
    return newest + 1


def requirements_in(version_dir: Path) -> tuple[str, ...]:
    """Return what the code of a version imports, each ``name==version``; nothing for what is no code.

    Raises:
        MalformedRecordError: Its requirements.txt can't be read.
    """
    path = version_dir / REQUIREMENTS_FILE
    if not (version_dir / PYTHON_FILE).is_file() or not path.is_file():
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise malformed("/".join(path.parts[-3:]), str(error)) from error
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
