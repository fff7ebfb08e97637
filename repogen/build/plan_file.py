"""The file of ``repogen build --plan``: the costs in a document that ``repogen plan --json`` printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import FailFast, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from repogen.errors import SpecError
from repogen.files import read_bytes, reason
from repogen.files.content import ContentError, require_few_values

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 256 * 2**20
_MAX_VALUES = 5_000_000


class _Cost(TypedDict):
    seconds: Annotated[float, Field(ge=0, le=1e9)]


class _Model(TypedDict):
    name: str
    status: Literal["pending", "up-to-date", "rejected"]
    cost: _Cost


class _Plan(TypedDict):
    models: Annotated[list[_Model], FailFast()]


_PLAN = TypeAdapter(_Plan)


def read_plan(path: Path) -> dict[str, float]:
    """Return the seconds of each model in a plan; those that would not be built cost nothing.

    Raises:
        SpecError: The file can't be read, or is not such a document.
    """
    try:
        content = read_bytes(path, _MAX_BYTES)
        require_few_values(content, _MAX_VALUES)
        document = _PLAN.validate_json(content)
    except OSError as error:
        raise _unusable(path, f"can't be read: {reason(error)}") from error
    except ContentError as error:
        raise _unusable(path, f"is not a plan: it {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _unusable(path, f"is not a plan: {f'{place}: ' if place else ''}{first['msg']}") from error
    return {
        model["name"]: model["cost"]["seconds"] if model["status"] == "pending" else 0.0 for model in document["models"]
    }


def _unusable(path: Path, problem: str) -> SpecError:
    return SpecError(
        f"the plan {path} {problem}",
        "write it with `repogen plan --json`, and pass the same file to every shard",
        code="plan.file",
    )
