"""YAML scalars by the core schema of YAML 1.2; values with another meaning in YAML 1.1 are rejected.

PyYAML resolves scalars by YAML 1.1, editors and other tools by 1.2. A value that the two read differently (``010``,
``1:30``, a date) is rejected, so that a spec has the same meaning everywhere. The booleans ``yes``, ``no``, ``on`` and
``off`` of 1.1 stay booleans, because keys that expect a string reject them.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
"""Keys with narrower bounds check them."""
CORE_TAGS = {f"tag:yaml.org,2002:{name}": name for name in ("null", "bool", "int", "float", "str", "seq", "map")}

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {
    form: truth
    for truth, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for word in words
    for form in (word, word.capitalize(), word.upper())
}
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_BASED = re.compile(r"(?P<sign>[-+]?)0(?:x(?P<hex>[0-9a-fA-F_]+)|o(?P<octal>[0-7_]+)|b(?P<binary>[01_]+))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?")
_OCTAL_1_1 = re.compile(r"[-+]?0[0-9_]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_MAX_DIGITS = 40


class ScalarError(ValueError):
    """A scalar without a unique meaning.

    Args:
        what: The problem.
        hint: How to write the value.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        """Store the parts."""
        super().__init__(what)
        self.what = what
        self.hint = hint


def resolve_plain(text: str) -> Scalar:
    """Return the value of an unquoted scalar.

    Raises:
        ScalarError: It is NaN, infinite, an integer beyond int64, a date, or read differently by YAML 1.1 and 1.2.

    >>> [resolve_plain(text) for text in ("no", "1e-3", "0x10", "~", "batch")]
    [False, 0.001, 16, None, 'batch']
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    _reject_ambiguous(text)
    if _DECIMAL.fullmatch(text) or _BASED.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    return text


def resolve_tagged(text: str, tag: str) -> Scalar:
    """Return the value of a scalar with an explicit tag.

    Raises:
        ScalarError: The tag is not in YAML's core schema, or the text does not match it.
    """
    name = CORE_TAGS.get(tag, "")
    if name == "str":
        return text
    if name not in {"null", "bool", "int", "float"}:
        raise ScalarError(f"the tag {short_tag(tag)} is not allowed", "a spec contains plain data only; remove the tag")
    value = resolve_plain(text)
    if name == "float" and type(value) is int:
        return float(value)
    if type(value).__name__ != {"null": "NoneType"}.get(name, name):
        raise ScalarError(f"does not match its tag !!{name}")
    return value


def short_tag(tag: str) -> str:
    """Return a tag as written in the file.

    >>> short_tag("tag:yaml.org,2002:python/object")
    '!!python/object'
    """
    return tag.replace("tag:yaml.org,2002:", "!!", 1)


def _reject_ambiguous(text: str) -> None:
    if _NOT_FINITE.fullmatch(text):
        raise ScalarError(f"{text} is not a finite number")
    if _DATE.fullmatch(text):
        raise ScalarError(f"YAML reads {text} as a date", f'quote it: "{text}"')
    if _OCTAL_1_1.fullmatch(text):
        raise ScalarError(f"{text} is octal to some YAML readers and decimal to others", "drop the leading zero")
    if _SEXAGESIMAL.fullmatch(text):
        raise ScalarError(f"some YAML readers read {text} as a number in base 60", f'quote it: "{text}"')


def _integer(text: str) -> int:
    out_of_range = ScalarError("is beyond the range of int64", f"integers are between {INT64_MIN} and {INT64_MAX}")
    if len(text) > _MAX_DIGITS:
        raise out_of_range
    digits = text.replace("_", "")
    if digits[-1] in "xob+-":
        raise ScalarError(f"{text} is not a number", "quote it if it is text")
    value = int(digits, 0)
    if not INT64_MIN <= value <= INT64_MAX:
        raise out_of_range
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ScalarError("is too large for a float")
    return value
