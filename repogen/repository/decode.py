"""JSON files in a model repository: decoded by pydantic, and each error names the file and the key."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from repogen.errors import ExitCode, RepogenError
from repogen.files.content import ContentError, read_text, require_few_values

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import TypeAdapter

SCHEMA = 1
"""Version of the file formats that this repogen reads and writes."""

INT64_MAX = 2**63 - 1
"""Largest number in a record: sizes and counts that Triton, the filesystem and NumPy can represent."""

_T = TypeVar("_T")
_NON_FINITE = frozenset({"nan", "inf", "-inf"})


class MalformedRecordError(RepogenError):
    """A JSON file in a repository does not have the format that repogen writes (exit 7: the repository is damaged)."""

    exit_code = ExitCode.PUBLISH
    default_code = "malformed-record"


def json_number(value: float) -> float | str:
    """Return ``value`` in a form that standard JSON supports: non-finite numbers as `nan`, `inf`, `-inf`.

    >>> json_number(0.5), json_number(float("inf"))
    (0.5, 'inf')
    """
    return value if math.isfinite(value) else str(value)


def _from_json_number(value: object) -> object:
    return float(value) if isinstance(value, str) and value in _NON_FINITE else value


def _check_schema(schema: int) -> int:
    if schema > SCHEMA:
        raise ValueError(f"schema {schema} is newer than this version of repogen supports ({SCHEMA})")
    return schema


Count = Annotated[int, Field(ge=0, le=INT64_MAX)]
JsonFloat = Annotated[float, BeforeValidator(_from_json_number), PlainSerializer(json_number, when_used="json")]


class Part(BaseModel):
    """An object in a JSON file. Unknown keys are ignored: a later repogen may add some."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class Document(Part):
    """A JSON file that states the version of its format."""

    format_version: Annotated[Count, AfterValidator(_check_schema)] = Field(alias="schema")


def decode(adapter: TypeAdapter[_T], text: str, where: str) -> _T:
    """Return the value in a JSON text; types are not coerced.

    Args:
        adapter: Type of the value.
        text: The file's contents.
        where: Name of the file, for messages.

    Raises:
        MalformedRecordError: The text is not JSON, or not of this type. The message names the first wrong key.
    """
    try:
        require_few_values(text)
        return adapter.validate_json(text, strict=True)
    except ContentError as error:
        raise malformed(where, str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        message = first["msg"].removeprefix("Value error, ")
        raise malformed(where, f"{key}: {message}" if key else message) from error


def read_record(adapter: TypeAdapter[_T], path: Path, where: str) -> _T:
    """Return the value in a JSON file; see ``decode``.

    Raises:
        MalformedRecordError: The file is larger than 16 MiB, not UTF-8, not JSON, or not of this type.
        OSError: The file can't be read.
    """
    try:
        text = read_text(path)
    except ContentError as error:
        raise malformed(where, str(error)) from error
    return decode(adapter, text, where)


def encode(document: Document) -> str:
    """Return a document as JSON, keys sorted; equal documents give equal text."""
    value = document.model_dump(mode="json", by_alias=True)
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def malformed(where: str, problem: str) -> MalformedRecordError:
    """Return the error that reports a problem in the file ``where``."""
    return MalformedRecordError(
        f"{where}: {problem}",
        "the file was edited or truncated after repogen wrote it: restore it from a backup",
        where=where,
    )
