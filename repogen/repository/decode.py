"""Reading back the JSON that repogen writes into repositories: typed, and every complaint names file and key."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TypeVar

from repogen.errors import ExitCode, RepogenError

_T = TypeVar("_T")


class MalformedRecordError(RepogenError):
    """A JSON file of a version directory is not what repogen writes (exit 7: the repository is damaged)."""

    exit_code = ExitCode.PUBLISH
    default_code = "malformed-record"


@dataclass(frozen=True)
class JsonObject:
    """A JSON object whose members are read by name and type; members nobody asks for are tolerated.

    Attributes:
        members: The parsed members.
        where: For messages: the file, and the key path within it.
    """

    members: dict[str, object]
    where: str

    def _get(self, key: str, kind: type[_T], name: str) -> _T:
        if key not in self.members:
            raise malformed(self.where, f"`{key}` is missing")
        value = self.members[key]
        # bool is an int to isinstance, but `true` is no size and no version
        if not isinstance(value, kind) or isinstance(value, bool):
            raise malformed(self.where, f"`{key}` must be {name}")
        return value

    def text(self, key: str) -> str:
        """Return the string ``key``."""
        return self._get(key, str, "a string")

    def count(self, key: str) -> int:
        """Return the non-negative integer ``key``."""
        value = self._get(key, int, "an integer")
        if value < 0:
            raise malformed(self.where, f"`{key}` must not be negative")
        return value

    def number(self, key: str) -> float:
        """Return the number ``key``; JSON has no NaN and no infinity, so those are the strings `nan` and `inf`."""
        value = self.members.get(key)
        if isinstance(value, str) and value in {"nan", "inf", "-inf"}:
            return float(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return self._get(key, float, "a number")

    def child(self, key: str) -> JsonObject:
        """Return the object ``key``."""
        return JsonObject(self._get(key, dict, "an object"), f"{self.where}: {key}")

    def children(self, key: str) -> list[JsonObject]:
        """Return the objects in the array ``key``."""
        return [
            JsonObject(_expect_object(item, f"{self.where}: {key}[{i}]"), f"{self.where}: {key}[{i}]")
            for i, item in enumerate(self._get(key, list, "an array"))
        ]

    def items(self, key: str) -> list[object]:
        """Return the array ``key``."""
        return list(self._get(key, list, "an array"))

    def texts(self, key: str) -> dict[str, str]:
        """Return the object ``key``, whose values are all strings."""
        child = self.child(key)
        return {name: child.text(name) for name in child.members}


def malformed(where: str, what: str) -> MalformedRecordError:
    """Return the error that says ``what`` is wrong at ``where``."""
    return MalformedRecordError(
        f"{where}: {what}",
        "The file was edited or truncated after repogen wrote it: restore the version directory, or build it anew.",
        where=where,
    )


def parse_object(text: str, where: str) -> JsonObject:
    """Return the JSON object in ``text``; ``where`` names its file in messages.

    Raises:
        MalformedRecordError: ``text`` is no JSON object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise malformed(where, f"no JSON ({error})") from error
    return JsonObject(_expect_object(value, where), where)


def json_number(value: float) -> float | str:
    """Return ``value`` as standard JSON can hold it: non-finite ones as `nan`, `inf`, `-inf`.

    >>> json_number(0.5), json_number(float("inf"))
    (0.5, 'inf')
    """
    return value if math.isfinite(value) else str(value)


def _expect_object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise malformed(where, "must be a JSON object")
    return value
