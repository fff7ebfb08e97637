"""Settings of `repogen check` in ``repogen.yaml`` (``check:``) or ``pyproject.toml`` (``[tool.repogen.check]``)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from repogen.errors import SpecError
from repogen.files import has_trusted_owner, is_file
from repogen.files.content import ContentError, read_text
from repogen.spec.problems import MAX_SHOWN, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pydantic import ValidationError as PydanticError

    from repogen.spec.check import CheckSpec

    _Reader: TypeAlias = Callable[[str, Path], tuple[object, object]]

SPEC, PYPROJECT = "repogen.yaml", "pyproject.toml"
_SPEC_KEYS = ("check", "target")
_MAX_BYTES = 1_000_000
_MAX_PARTS = 16
# tomllib needs memory for the square of a key's parts. Each part is a bare word or a string, as in TOML's grammar; the
# expression does not go back, so its time grows with the text.
_LONG_KEY = re.compile(
    r"""(?<![\w\\-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    f"{{{_MAX_PARTS}}}"
)


@dataclass(frozen=True)
class CheckSettings:
    """Settings, and the file that they come from.

    Attributes:
        spec: The settings.
        file: The file.
    """

    spec: CheckSpec
    file: Path


def find_settings(directory: Path, spec: Path | None = None) -> CheckSettings | None:
    """Return the settings of the closest file that has any: in the directory, or in one above it.

    In one directory, ``repogen.yaml`` takes precedence over ``pyproject.toml``. If the settings name no release, it is
    that of the closest spec, which need not have settings.

    Args:
        directory: The directory; not used if there is a ``spec``.
        spec: A spec to use in place of ``repogen.yaml`` in its directory, where the search begins.

    Raises:
        SpecError: A file is not valid, or ``spec`` does not exist or cannot be read.
    """
    if spec is not None:
        from repogen.spec.load import read_spec  # noqa: PLC0415 - imports the rules of specs

        read_spec(spec)
    release: object = None
    closest: Path | None = None
    settings: tuple[object, Path] | None = None
    spec = None if spec is None else spec.parent.resolve() / spec.name
    first = directory if spec is None else spec.parent
    for file, read_section in _files(first.absolute(), spec):
        if file != spec and (not is_file(file) or not _is_trusted(file, first)):
            continue
        values, target = read_section(_read(file), file)
        if release is None and target is not None:
            release, closest = target, file
        if settings is None and values is not None:
            settings = values, file
        if settings is not None and release is not None:
            break
    if settings is not None:
        return CheckSettings(_validated(settings[0], release, settings[1]), settings[1])
    return None if closest is None else CheckSettings(_validated({}, release, closest), closest)


def _files(first: Path, spec: Path | None) -> Iterator[tuple[Path, _Reader]]:
    """Yield the files that may have settings, the closest first, and how their section is read."""
    for parent in (first, *first.parents):
        yield (spec if spec is not None and parent == first else parent / SPEC), _from_spec
        yield parent / PYPROJECT, _from_pyproject


def _is_trusted(file: Path, directory: Path) -> bool:
    """Return whether a file is that of the user, of root, or of the owner of the directory.

    Another user may create one in a directory above, such as ``/tmp``; it could turn findings off.
    """
    try:
        return has_trusted_owner(file, directory)
    except OSError as error:
        raise _invalid(file, f"it cannot be read: {error.strerror}") from error


def _read(file: Path) -> str:
    try:
        return read_text(file, _MAX_BYTES)
    except (OSError, ContentError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _invalid(file, f"the file cannot be read: {reason}") from error


def _from_spec(text: str, file: Path) -> tuple[object, object]:
    """Return the section, and the release that the spec builds for; None for what the spec does not have."""
    if "check" not in text and "target" not in text:
        return None, None
    from repogen.spec.document import compose, data  # noqa: PLC0415 - imports the YAML parser

    root, problems = compose(text, str(file))
    if root is None or not isinstance(root.value, dict):
        raise _invalid(file, str(problems[0]) if problems else "it is not a mapping")
    section, target = (None if (entry := root.value.get(key)) is None else data(entry.node) for key in _SPEC_KEYS)
    return section, target.get("triton") if isinstance(target, dict) else None


def _from_pyproject(text: str, file: Path) -> tuple[object, None]:
    """Return the section, and None for the release: only a spec has one."""
    if "repogen" not in text:
        return None, None
    if _LONG_KEY.search(text):
        raise _invalid(file, f"a key has more than {_MAX_PARTS} parts")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an integer with thousands of digits, nested arrays
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _invalid(file, problem) from error
    section: object = document
    for name in ("tool", "repogen", "check"):
        section = section.get(name) if isinstance(section, dict) else None
    return section, None


def _validated(values: object, release: object, file: Path) -> CheckSpec:
    from pydantic import ValidationError  # noqa: PLC0415 - only where there are settings

    from repogen.spec.check import CheckSpec  # noqa: PLC0415 - the same

    if not isinstance(values, dict):
        raise _invalid(file, "check must be a mapping")
    try:
        settings = {str(key).replace("-", "_"): value for key, value in values.items()}
        return CheckSpec.model_validate({"target": release, **settings})
    except ValidationError as error:
        raise _invalid(file, "; ".join(_problems(error, list(CheckSpec.model_fields)))) from error


def _problems(error: PydanticError, keys: Sequence[str]) -> Iterator[str]:
    for problem in error.errors(include_url=False)[:MAX_SHOWN]:
        key = ".".join(map(str, problem["loc"]))
        what = problem["msg"]
        if problem["type"] == "extra_forbidden":
            what = f"unknown key ({nearest(key, keys)})"
        yield f"{key}: {what}"


def _invalid(file: Path, problem: str) -> SpecError:
    return SpecError(
        f"the settings of `repogen check` are not valid: {problem}",
        "the keys are target, select, ignore, per_path_ignores and strict",
        code="check.config",
        where=str(file),
    )
