"""Finds the page of a code."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from repogen.errors import SpecError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_SECTION = re.compile(r"^## `(?P<code>[^`]+)`(?P<others>(?:, `[^`]+`)*)$", re.MULTILINE)
_RULE = re.compile(r"RG\d{3}")
_FAMILY = re.compile(r"RG\d{0,2}", re.ASCII)


def explain(code: str) -> str:
    """Return the page of a rule code or error code, or the titles of a family of rules, as Markdown.

    >>> explain("rg103").splitlines()[0]
    '# RG103: max_batch_size is 0 or more'
    >>> explain("RG10").splitlines()[2]
    '- RG103: max_batch_size is 0 or more'

    Args:
        code: For example ``RG101`` or ``source.random``, or the beginning of rule codes; not case-sensitive.

    Raises:
        SpecError: There is no such code; the hint names similar ones.
    """
    codes_by_lower = {name.lower(): name for name in codes()}
    name = codes_by_lower.get(code.lower())
    family = [rule for rule in codes() if _RULE.fullmatch(rule) and rule.startswith(code.upper())]
    if name is None and family and _FAMILY.fullmatch(code.upper()):
        return "".join(f"- {explain(rule).splitlines()[0].removeprefix('# ')}\n" for rule in family)
    if name is None:
        from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

        similar = [codes_by_lower[match] for match in get_close_matches(code.lower(), codes_by_lower, n=3, cutoff=0.75)]
        hint = f"did you mean {', '.join(similar)}?" if similar else "`repogen explain` lists all codes"
        raise SpecError(f"{code!r} is not a known code", hint, code="explain.unknown")
    if _RULE.fullmatch(name):
        return (_pages() / "rules" / f"{name}.md").read_text(encoding="utf-8")
    return _error_sections()[name]


@cache
def codes() -> tuple[str, ...]:
    """Return all codes that have a page: error codes by name, then rule codes."""
    rules = sorted(path.name.removesuffix(".md") for path in (_pages() / "rules").iterdir())
    return (*sorted(_error_sections()), *rules)


@cache
def _error_sections() -> dict[str, str]:
    sections: dict[str, str] = {}
    for path in (_pages() / "errors").iterdir():
        text = path.read_text(encoding="utf-8")
        matches = list(_SECTION.finditer(text))
        ends = [match.start() for match in matches[1:]] + [len(text)]
        for match, end in zip(matches, ends, strict=True):
            body = text[match.end() : end].strip()
            for name in re.findall(r"`([^`]+)`", match[0]):
                sections[name] = f"# {name}\n\n{body}\n"
    return sections


def _pages() -> Traversable:
    return files("repogen.explain")
