"""Where files are in a model repository, and which version numbers Triton reads from directory names. Read-only.

Every directory in the repository's root is a model, ``<model>/config.pbtxt`` configures all its versions, and
``<model>/<N>/`` is a version. A version that repogen built also contains ``manifest.json`` and its own config.pbtxt.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import (
    CONFIG_FILE,
    MAX_CONFIG_BYTES,
    OWNER_FILE,
    PACKED_CODE_FILE,
    PYTHON_FILE,
    REQUIREMENTS_FILE,
)
from repogen.errors import PublishError
from repogen.files import exists, is_directory, is_file, is_foreign_in_public, raise_if_exhausted
from repogen.files.content import ContentError, read_bytes, read_text
from repogen.repository.decode import malformed

if TYPE_CHECKING:
    from pathlib import Path

PROBE_PREFIX = ".repogen-probe-"
"""Prefix of the files that `repogen build` renames to test that it can publish."""

# Model files by which Triton finds the backend of a model whose config does not name it.
MODEL_FILES = (
    "model.onnx", "model.plan", "model.pt", "model.py", "model.graphdef", "model.savedmodel", "model.json", "model.xml",
)  # fmt: skip
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# std::stoll: white space, a sign, ASCII digits; whatever follows is ignored
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_STOLL = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)


def model_dir(repository: Path, name: str) -> Path:
    """Return the directory of model ``name``.

    Raises:
        PublishError: The name would escape the repository, hide the model, or be that of repogen's own file.
    """
    if not name.isprintable() or name in {"", OWNER_FILE} or name.startswith(".") or "/" in name:
        raise PublishError(
            f"{name!r} cannot be the name of a model's directory",
            "use letters, digits, `_` and `-`",
            code="publish.model-name",
        )
    return repository / name


def directory_of_step(repository: Path, name: str) -> Path | None:
    """Return the directory of a model that an ensemble names; None if the repository has no such directory.

    The name is not trusted: one that leads out of the repository, such as ``..`` or ``../other``, is not a model.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        return None
    return repository / name if is_directory(repository / name) else None


def journal_path(model: Path) -> Path:
    """Return the path of a model's journal, which exists while a publish runs."""
    return model.parent / f".repogen.{model.name}.pending.json"


def stage_container(repository: Path, stage_dir: Path | None) -> Path:
    """Return the directory of the builds' staging directories: next to the repository, or in ``stage_dir``."""
    return (repository.parent if stage_dir is None else stage_dir) / f".{repository.name}.repogen-stage"


def temporary_files(directory: Path) -> list[Path]:
    """Return files that repogen creates in a directory for a moment, and that a killed run leaves."""
    return [
        entry
        for entry in _entries(directory)
        if entry.name.startswith(PROBE_PREFIX) and is_file(entry) and not entry.is_symlink()
    ]


def archive_dir(repository: Path) -> Path:
    """Return the directory for models that lost their alias: next to the repository, where Triton does not look."""
    return repository.with_name(f"{repository.name}.unserved")


def models_of(repository: Path) -> tuple[str, ...]:
    """Return the names of a repository's models, every directory in its root; empty if the repository does not exist.

    Raises:
        PublishError: It can't be read.
    """
    return tuple(sorted(entry.name for entry in _entries(repository) if is_directory(entry)))


def is_model(directory: Path) -> bool:
    """Return whether a directory looks like a model: it has a config, or a version with a model file."""
    if os.path.lexists(directory / CONFIG_FILE):
        return True
    try:
        versions = [directory / str(number) for number in triton_versions(directory)]
    except PublishError:
        return True  # reading the model reports why
    return any(exists(version / name) for version in versions for name in MODEL_FILES)


def triton_version(name: str) -> int | None:
    """Return the version number that Triton reads from a directory's name; None for a directory that it ignores.

    The number may exceed 64 bits, see ``overflows``. Measured on tritonserver 2.51, tests/integration/test_versions.py.
    Source: ``GetModelVersions`` of triton-inference-server/core, which skips names with a leading zero and passes the
    others to ``std::stoll``.

    >>> [triton_version(name) for name in ("7", "0", "5x", "+3", " 4", "-2")]
    [7, 0, 5, 3, 4, -2]
    >>> [triton_version(name) for name in ("01", "0x1", "v2", "tmp", ".5")]
    [None, None, None, None, None]
    """
    match = _STOLL.match(name)
    return None if match is None or (name[0] == "0" and len(name) > 1) else int(match[1])


def overflows(number: int) -> bool:
    """Return whether a version number exceeds Triton's 64-bit integer, which terminates tritonserver 2.51."""
    return not _INT64_MIN <= number <= _INT64_MAX


def triton_versions(model: Path) -> list[int]:
    """Return the version numbers that Triton reads from a model's directory, ascending; empty if it does not exist.

    Triton then loads version N from ``<model>/<N>``, which need not exist: it reads 5 from a directory named `5x`.

    Raises:
        PublishError: The directory can't be read.
    """
    numbers = {triton_version(entry.name) for entry in _entries(model) if is_directory(entry)}
    return sorted(number for number in numbers if number is not None and not overflows(number))


def versions(model: Path) -> list[int]:
    """Return the versions that Triton can load from a model's directory: those with a directory ``<model>/<N>``."""
    return [number for number in triton_versions(model) if number >= 0 and is_directory(model / str(number))]


def require_own_directories(model: Path) -> None:
    """Require that no other user created a model's directory, or one of its versions, in a directory such as ``/tmp``.

    Raises:
        PublishError: Another user did, and could replace what is in it.
    """
    for path in (model, *(model / str(number) for number in versions(model))):
        if is_foreign_in_public(path, path.parent):
            raise PublishError(
                f"{path} belongs to another user, who could replace the files in it",
                "remove it, or use a repository in which only trusted users can create files",
                code="publish.foreign-model",
            )


def latest_version(model: Path) -> int | None:
    """Return the newest version in a model's directory, None if it has no versions."""
    return max(versions(model), default=None)


def next_version(model: Path) -> int:
    """Return the number after all that Triton reads from directory names in a model's directory, and after files.

    A file named `3` would be in the way of a version 3. Reserved numbers count as well.

    Raises:
        PublishError: No 64-bit integer is left.
    """
    newest = _reserved(model)
    for entry in _entries(model):
        number = triton_version(entry.name)
        if number is not None and (is_directory(entry) or entry.name == str(number)):
            newest = max(newest, number)
    if newest >= _INT64_MAX:
        raise PublishError(
            f"{model.name}: a directory's name contains {newest}, and no larger 64-bit version number exists",
            f"move it out of {model}: a name that overflows 64 bits crashes Triton",
            code="publish.version-overflow",
        )
    return newest + 1


def reservation(model: Path) -> Path:
    """Return the path of a file in the root of a working copy: no version gets the number in it, or a smaller one."""
    return model.parent / f".repogen-reserved.{model.name}"


def _reserved(model: Path) -> int:
    path = reservation(model)
    text = ""
    with suppress(OSError, UnicodeDecodeError):
        text = read_text(path) if is_file(path) else ""
    return int(text) if _NUMBER.fullmatch(text) else 0


def _entries(directory: Path) -> list[Path]:
    """Return what a directory contains; empty if it does not exist, or is not a directory.

    Raises:
        PublishError: It can't be read.
        OSError: Too many files are open, for example.
    """
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise_if_exhausted(error)
        hint = "make it readable, or choose another directory"
        raise PublishError(
            f"{directory} cannot be read: {error.strerror}", hint, code="repository.unreadable"
        ) from error


def config_bytes(directory: Path, name: str = CONFIG_FILE) -> bytes | None:
    """Return the config.pbtxt in a directory, or its copy with another name; None if there is none.

    Raises:
        MalformedRecordError: It is larger than 1 MiB.
        OSError: It can't be read.
    """
    path = directory / name
    try:
        return read_bytes(path, MAX_CONFIG_BYTES) if is_file(path) else None
    except ContentError as error:
        raise malformed("/".join(path.parts[-3:]), str(error)) from error


def code_file(version_dir: Path) -> Path:
    """Return the path of the user's code in a version of a Python model, whether its packages are packed or not."""
    packed = version_dir / PACKED_CODE_FILE
    return packed if is_file(packed) else version_dir / PYTHON_FILE


def requirements_in(version_dir: Path) -> tuple[str, ...]:
    """Return the distributions that a version's Python code imports, each ``name==version``; empty without code.

    Raises:
        MalformedRecordError: Its requirements.txt can't be read.
    """
    path = version_dir / REQUIREMENTS_FILE
    if not is_file(version_dir / PYTHON_FILE) or not is_file(path):
        return ()
    try:
        lines = read_text(path).splitlines()
    except (OSError, ContentError) as error:
        raise malformed("/".join(path.parts[-3:]), str(error)) from error
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
