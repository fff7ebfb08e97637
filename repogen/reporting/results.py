"""The results that reports are made of: what ``build``, ``bench`` and ``tune`` measured of each model, as JSON files.

They are in ``build/reports/`` next to the spec: ``build/MODEL/build.json`` and ``bench/MODEL/bench.json`` as ``--json``
prints one model, and ``tune/MODEL/tune.json``. A file that is missing, or that is not such a result, counts as absent.
"""

from __future__ import annotations

import errno
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from repogen.artifacts.tuning import TuningRecord
from repogen.errors import SpecError
from repogen.files import is_foreign_in_public, read_inside
from repogen.files.content import ContentError, require_few_values
from repogen.files.resolve import directory_to_write, resolved
from repogen.reporting.json import as_dict
from repogen.reporting.json_types import BenchDocument, BuildDocument

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.bench import BenchReport
    from repogen.artifacts.report import BuildReport
    from repogen.reporting.json_types import ModelDocument

REPORTS = Path("build", "reports")
"""Directory of reports and results, relative to the directory of the spec."""

_BUILD = TypeAdapter(BuildDocument)
_BENCH = TypeAdapter(BenchDocument)
_TUNE = TypeAdapter(TuningRecord)
_Result = TypeVar("_Result")
_LARGEST = 1e300
"""Largest number of a result; a plot of larger ones could not be computed."""


@dataclass(frozen=True)
class Results:
    """What was measured of one model.

    Attributes:
        build: Its last build; None without one.
        bench: Its last benchmark, with one model.
        tuning: Its last search.
    """

    build: ModelDocument | None = None
    bench: BenchDocument | None = None
    tuning: TuningRecord | None = None


def read_results(directory: Path, name: str) -> Results:
    """Return the results of a model; those that do not exist or cannot be read are None."""
    if Path(name).name != name:
        return Results()
    try:
        root = resolved(directory)
    except SpecError:  # behind a symlink of another user
        return Results()
    build = _read(result_file(root, "build", name), root, _BUILD.validate_json)
    bench = _read(result_file(root, "bench", name), root, _BENCH.validate_json)
    tuning = _read(result_file(root, "tune", name), root, _TUNE.validate_json)
    return Results(
        next((model for model in build["models"] if model["name"] == name), None) if build else None,
        bench if bench and [model["name"] for model in bench["models"]] == [name] else None,
        tuning if tuning is not None and tuning.model == name else None,
    )


def result_file(directory: Path, command: Literal["build", "bench", "tune"], name: str) -> Path:
    """Return the file with what a command measured of a model."""
    return directory / command / name / f"{command}.json"


def build_document(report: BuildReport) -> BuildDocument:
    """Return the JSON document of a build, with its type."""
    return cast("BuildDocument", as_dict(report))


def write_build_results(report: BuildReport, directory: Path) -> None:
    """Store the result of each model that was published or verified.

    Args:
        report: The report.
        directory: ``REPORTS`` in the directory of the spec.

    Raises:
        OSError: A file can't be written.
    """
    document = build_document(report)
    for model in document["models"]:
        if model["status"] in {"published", "verified"}:
            _write_json({**document, "models": [model]}, directory, result_file(directory, "build", model["name"]))


def write_bench_results(report: BenchReport, directory: Path) -> None:
    """Store the measurements of each model that was measured.

    Args:
        report: The report.
        directory: ``REPORTS`` in the directory of the spec.

    Raises:
        OSError: A file can't be written.
    """
    document = as_dict(report)
    for model in report.models:
        if model.rows:
            path = result_file(directory, "bench", model.name)
            _write_json({**document, "models": [as_dict(model)]}, directory, path)


def write_file(text: str, path: Path, base: Path) -> None:
    """Write a text file so that no reader sees a part of it; its directory is created.

    The bytes of a path that are not UTF-8 are written as escapes, which are also those of JSON.

    Args:
        text: The content.
        path: The file.
        base: Directory of the spec, or the working directory.

    Raises:
        OSError: It can't be written; or a directory below ``base``, in a directory such as ``/tmp``, belongs to
            another user; or a symlink of another user leads to where it would be written.
    """
    directories = [parent for parent in path.parents if parent != base and parent.is_relative_to(base)]
    if any(is_foreign_in_public(parent, base) for parent in directories):
        raise PermissionError(errno.EPERM, "its directory belongs to another user", str(path))
    with directory_to_write(path.parent) as parent:
        new = parent / f".{path.name[:50]}-{secrets.token_hex(8)}"
        try:
            with new.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
                stream.write(text)
            new.replace(parent / path.name)
        finally:
            new.unlink(missing_ok=True)


def _write_json(document: object, directory: Path, path: Path) -> None:
    write_file(json.dumps(document, indent=1) + "\n", path, directory.parents[len(REPORTS.parts) - 1])


def _read(path: Path, root: Path, decode: Callable[[bytes], _Result]) -> _Result | None:
    """Return a result; None if it is missing, is not a result, or leads out of ``root``, see ``open_inside``."""
    try:
        content = read_inside(path, root, root)
        require_few_values(content)
        result = decode(content)
        return result if _is_plottable(from_json(content)) else None
    except (OSError, ContentError, ValidationError):
        return None


def _is_plottable(document: object) -> bool:
    """Return whether every number of a document is finite, and none is very large."""
    values = [document]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
        elif isinstance(value, (int, float)) and not -_LARGEST <= value <= _LARGEST:
            return False
    return True
