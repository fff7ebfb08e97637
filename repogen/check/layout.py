"""Findings about a repository's directories: models, version directories, and the versions that are served."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.files import exists, is_directory
from repogen.files.paths import FOREIGN_LINK, foreign_link, real_path
from repogen.files.work_limit import WorkLimitError
from repogen.repository.layout import MODEL_FILES, is_model, overflows, triton_version, triton_versions
from repogen.triton_config.rules.findings import Finding, listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from repogen.triton_config.rules.findings import Severity
    from repogen.triton_config.text.parse import ModelConfig

_LEADING_ZERO = re.compile(r"0[0-9].*|0[^0-9].*", re.DOTALL)


def unreadable(directory: Path, error: OSError | RepogenError) -> Finding:
    """Return the finding that a model's directory, or a file in it, cannot be read."""
    reason = str(error) if isinstance(error, RepogenError) else f"{error.filename} cannot be read: {error.strerror}"
    hint = error.hint if isinstance(error, WorkLimitError) else "make it readable for the user that runs Triton"
    return Finding("RG401", "error", reason, hint, path=str(directory), security=True)


def root_findings(repository: Path) -> Iterator[Finding]:
    """Yield each directory of a repository's root that is not a model: Triton loads every directory as a model."""
    for entry in sorted(repository.iterdir()):
        if entry.is_symlink() and not exists(entry):
            message = f"{entry.name} is a broken symlink, and Triton fails to start"
            yield Finding("RG401", "error", message, "remove it", path=str(entry))
        if is_directory(entry) and not is_model(entry):
            is_hidden = entry.name.startswith(".")
            kind = "a hidden directory" if is_hidden else "a directory without a model"
            message = f"{entry.name}/ is {kind}, and Triton loads every directory here as a model: it fails to start"
            hint = "move it out of the repository"
            if not is_hidden:
                hint += (
                    "; if it is a repository, pass its path; if it is a model, it needs a config.pbtxt, or a file with "
                    "the default name (1/model.onnx, 1/model.py, …) in a directory whose name is a number"
                )
            yield Finding("RG401", "error", message, hint, path=str(entry))


def is_foreign_config(path: Path) -> bool:
    """Return whether a model's config.pbtxt, or its directory, is a ``foreign_link``; those above are not examined."""
    return bool(foreign_link(real_path(path.parent.parent) / path.parent.name / path.name))


def unreadable_config(path: Path) -> str:
    """Return why a config.pbtxt cannot be read; empty for a regular file, or if it does not exist.

    A link of another user may lead to a private file, words of which would be in messages.
    """
    if is_foreign_config(path):
        return FOREIGN_LINK
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a broken symlink" if path.is_symlink() else ""
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISREG(mode):
        return ""
    return "is a directory, which crashes tritonserver 2.51" if stat.S_ISDIR(mode) else "is not a regular file"


def version_findings(directory: Path, served: Collection[int], *, ensemble: bool) -> Iterator[Finding]:
    """Yield findings about the names of version directories.

    Args:
        directory: The model's directory.
        served: The versions that Triton serves.
        ensemble: Whether the model is an ensemble, whose version directories are empty.
    """
    for entry in sorted(directory.iterdir()):
        if is_directory(entry):
            yield from _name_findings(entry, served)
    if not triton_versions(directory):
        message = f"{directory.name} has no version directory"
        hint = "create an empty directory 1/" if ensemble else _hint_without_version(directory)
        yield Finding("RG404", "error", message, hint, path=str(directory))


def _hint_without_version(directory: Path) -> str:
    """Return how to give a model a version: if only one directory has a model file, it only needs another name."""
    names = [
        entry.name
        for entry in directory.iterdir()
        if is_directory(entry) and any(exists(entry / file) for file in MODEL_FILES)
    ]
    if len(names) != 1:
        return "create 1/ with the model file"
    number = names[0].lstrip("v0")
    return f"rename {names[0]} to {number if number.isdecimal() else 1}"


def policy_findings(versions: Collection[int], config: ModelConfig) -> Iterator[Finding]:
    """Yield versions that the version policy names and that do not exist."""
    numbers = config.version_policy.specific.versions
    none_exists = not set(versions) & set(numbers)
    hint = f"existing versions: {listed(map(str, sorted(versions))) or 'none'}"
    for index, number in enumerate(numbers):
        if number not in versions:
            message = f"version_policy names version {number}, which does not exist"
            field = f"version_policy.specific.versions[{index}]"
            yield Finding("RG404", "error" if none_exists else "warning", message, hint, field)


def _name_findings(entry: Path, served: Collection[int]) -> Iterator[Finding]:
    """Yield a finding for a name that is not a plain version number, although it is or resembles one."""
    path, name, number = str(entry), entry.name, triton_version(entry.name)
    if number is None:
        if _LEADING_ZERO.fullmatch(name):
            fix = name.lstrip("0") if name.isdecimal() else ""
            message = f"{name}/ has a leading zero, and Triton ignores it"
            yield Finding(
                "RG403", "warning", message, f"rename it to {fix}" if fix else "remove it", path=path, fix=fix
            )
    elif overflows(number):
        message = f"version {name} overflows Triton's 64 bits, which crashes tritonserver 2.51"
        yield Finding("RG403", "error", message, "use a smaller number", path=path)
    elif number < 0 or name != str(number):
        exists = number >= 0 and is_directory(entry.with_name(str(number)))
        message = f"{name}/ counts as version {number}: Triton reads the number at the beginning of a name"
        message += "" if exists else f", and then looks for {number}/" if number >= 0 else ", and cannot load it"
        severity: Severity = "error" if number in served and not exists else "warning"
        fix = "" if exists or number < 0 else str(number)
        yield Finding("RG403", severity, message, "move it out of the model's directory", path=path, fix=fix)
    elif number == 0:
        message = "version 0 loads, but a request without a version uses the newest version"
        yield Finding("RG403", "warning", message, "number versions from 1", path=path, fix="1")
