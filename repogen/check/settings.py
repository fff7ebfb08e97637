"""Settings of `repogen check` in ``repogen.yaml`` (``check:``) or ``pyproject.toml`` (``[tool.repogen.check]``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import ValidationError as PydanticError

    from repogen.spec.check import CheckSpec

SPEC, PYPROJECT = "repogen.yaml", "pyproject.toml"
_MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class CheckSettings:
    """Settings, and the file that they come from.

    Attributes:
        spec: The settings.
        file: The file.
    """

    spec: CheckSpec
    file: Path


def find_settings(directory: Path) -> CheckSettings | None:
    """Return the settings of the closest file that has any: in the directory, or in one above it.

    In one directory, ``repogen.yaml`` takes precedence over ``pyproject.toml``.

    Raises:
        SpecError: A file is not valid.
    """
    for parent in (directory.absolute(), *directory.absolute().parents):
        for file, section in ((parent / SPEC, _from_spec), (parent / PYPROJECT, _from_pyproject)):
            values = section(_read(file), file) if file.is_file() else None
            if values is not None:
                return CheckSettings(_validated(values, file), file)
    return None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(file, str(error)) from error


def _from_spec(text: str, file: Path) -> object:
    if "check" not in text:
        return None
    from repogen.spec.document import compose, data  # noqa: PLC0415 - imports the YAML parser

    root, problems = compose(text, str(file))
    if root is None or not isinstance(root.value, dict):
        raise _invalid(file, str(problems[0]) if problems else "it is not a mapping")
    entry = root.value.get("check")
    target = root.value.get("target")
    values = None if entry is None else data(entry.node)
    if not isinstance(values, dict) or target is None:
        return values
    release = data(target.node)
    return {"target": release.get("triton"), **values} if isinstance(release, dict) else values


def _from_pyproject(text: str, file: Path) -> object:
    if "repogen" not in text:
        return None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(file, str(error)) from error
    section: object = document
    for name in ("tool", "repogen", "check"):
        section = section.get(name) if isinstance(section, dict) else None
    return section


def _validated(values: object, file: Path) -> CheckSpec:
    from pydantic import ValidationError  # noqa: PLC0415 - only where there are settings

    from repogen.spec.check import CheckSpec  # noqa: PLC0415 - the same

    if not isinstance(values, dict):
        raise _invalid(file, "check must be a mapping")
    try:
        return CheckSpec.model_validate({str(key).replace("-", "_"): value for key, value in values.items()})
    except ValidationError as error:
        raise _invalid(file, "; ".join(_problems(error))) from error


def _problems(error: PydanticError) -> Iterator[str]:
    for problem in error.errors():
        yield f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _invalid(file: Path, problem: str) -> SpecError:
    return SpecError(
        f"the settings of `repogen check` are not valid: {problem}",
        "the keys are target, select, ignore, per_path_ignores and strict",
        code="check.config",
        where=str(file),
    )
