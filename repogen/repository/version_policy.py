"""Which versions a config.pbtxt serves, read from its text and changed in it: all that publish needs to know of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.errors import PublishError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Text format of protobuf: comments, quoted strings, punctuation, words. A quoted string is one token, so that a tensor
# named `version_policy {` says nothing here.
_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{}<>\[\],:;]|[^\s{}<>\[\],:;"'#]+""")
_OPEN, _CLOSE = frozenset("{<"), frozenset("}>")


@dataclass(frozen=True)
class VersionPolicy:
    """Triton's version_policy.

    Attributes:
        specific: The versions it names; empty unless it is ``specific``.
        latest: How many of the newest; 0 for all.
    """

    specific: frozenset[int] = frozenset()
    latest: int = 1

    def served(self, versions: Iterable[int]) -> frozenset[int]:
        """Return those of ``versions`` that Triton would load."""
        present = sorted(versions)
        if self.specific:
            return self.specific & set(present)
        return frozenset(present[-self.latest :] if self.latest else present)


def version_policy(config: str) -> VersionPolicy:
    """Return the version policy of a config.pbtxt; without one, Triton serves the newest version.

    Args:
        config: The file's text, which a protobuf parser has already accepted.

    >>> version_policy("version_policy { latest { num_versions: 2 } }").served([1, 2, 3])
    frozenset({2, 3})
    >>> version_policy('version_policy: { specific: { versions: [ 1, 3 ] } }').served([1, 2, 3])
    frozenset({1, 3})
    """
    words = list(_block("version_policy", _tokens(config)))
    if "specific" in words:
        return VersionPolicy(specific=frozenset(_numbers(_block("specific", iter(words)))))
    if "all" in words:
        return VersionPolicy(latest=0)
    # proto3: a `latest {}` without num_versions is 1 to Triton
    return VersionPolicy(latest=next(iter(_numbers(words)), 1) or 1)


def serving_only(config: str, version: int) -> str:
    r"""Return a config.pbtxt that serves one version; nothing else in the text changes.

    Args:
        config: The file's text, which a protobuf parser has already accepted.
        version: The version; its directory must be there when Triton reads the result.

    >>> serving_only('name: "m"', 2)
    'name: "m"\n\nversion_policy: { specific: { versions: [ 2 ] } }\n'
    >>> serving_only("version_policy { all {} } # mine", 2)
    'version_policy: { specific: { versions: [ 2 ] } } # mine'
    """
    policy = f"version_policy: {{ specific: {{ versions: [ {version} ] }} }}"
    begin, end = _span("version_policy", config)
    if begin == end:
        return "\n".join((config.rstrip("\n"), "", policy, ""))
    return config[:begin] + policy + config[end:]


def _span(name: str, config: str) -> tuple[int, int]:
    """Return where the top-level field ``name { … }`` begins and ends; an empty span when there is none."""
    depth, begin = 0, -1
    for match in _TOKEN.finditer(config):
        if match[0] in _OPEN:
            depth += 1
        elif match[0] in _CLOSE:
            depth -= 1
            if depth == 0 and begin >= 0:
                return begin, match.end()
        elif depth == 0 and match[0] == name:
            begin = match.start()
    return 0, 0


def _tokens(config: str) -> Iterator[str]:
    return (match[0] for match in _TOKEN.finditer(config) if not match[0].startswith("#"))


def _block(name: str, tokens: Iterator[str]) -> Iterator[str]:
    """Yield the tokens within the first top-level ``name { … }``."""
    depth, inside = 0, False
    for token in tokens:
        if token in _CLOSE:
            depth -= 1
            if inside and depth == 0:
                return
        if inside and depth > 0:
            yield token
        if token in _OPEN:
            depth += 1
        if depth == 0 and token == name:
            inside = True


def _numbers(words: Iterable[str]) -> list[int]:
    try:
        return [int(word, 0) for word in words if word[0].isdigit()]
    except ValueError as error:
        raise PublishError(f"config.pbtxt: version_policy holds {error}", code="publish.version-policy") from error
