"""Which versions a config.pbtxt serves, and the edit of its text that changes them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from repogen.triton_config.text.parse import require_plausible_size
from repogen.triton_config.text.source_map import locate_fields, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.triton_config.text.parse import ModelConfig
    from repogen.triton_config.text.source_map import Position

_FIELD = "version_policy"
_OPENING, _CLOSING = frozenset("{<"), frozenset("}>")


def served_versions(config: ModelConfig | None, versions: Iterable[int]) -> tuple[int, ...]:
    """Return the versions that Triton serves, newest first.

    Args:
        config: The parsed config.pbtxt; None for a model without one.
        versions: The versions of the model, see ``repogen.repository.layout.triton_versions``.

    Measured on tritonserver 2.51 (tests/integration/test_versions.py): without ``version_policy`` it serves the newest
    version; ``version_policy { }`` serves all of them; ``latest { }`` and ``specific { }`` serve none, and the model
    does not load.

    >>> from repogen.triton_config.text.parse import parse
    >>> served_versions(parse("version_policy { latest { num_versions: 2 } }", "m"), [1, 2, 3])
    (3, 2)
    """
    newest_first = sorted(set(versions), reverse=True)
    if config is None or not config.HasField(_FIELD):
        return tuple(newest_first[:1])
    policy = config.version_policy
    if policy.HasField("specific"):
        named = frozenset(policy.specific.versions)
        return tuple(version for version in newest_first if version in named)
    if policy.HasField("latest"):
        return tuple(newest_first[: policy.latest.num_versions])
    return tuple(newest_first)


def serving_only(config: str, version: int) -> str:
    r"""Return the text of a config.pbtxt that serves one version; the rest of the text is unchanged.

    Args:
        config: The file's text.
        version: The version.

    Raises:
        PbtxtError: The text's braces are not balanced, or it is too large.

    >>> serving_only('name: "m"', 2)
    'name: "m"\n\nversion_policy: { specific: { versions: [ 2 ] } }\n'
    >>> serving_only("version_policy { all {} } # mine", 2)
    'version_policy: { specific: { versions: [ 2 ] } } # mine'
    """
    return serving(config, version)


def serving(config: str, *versions: int) -> str:
    """Return the text of a config.pbtxt that serves some versions; see ``serving_only``."""
    numbers = ", ".join(map(str, versions))
    policy = f"{_FIELD}: {{ specific: {{ versions: [ {numbers} ] }} }}"
    span = _policy_span(config)
    if span is None:
        return "\n".join((config.rstrip("\n"), "", policy, ""))
    return config[: span[0]] + policy + config[span[1] :]


def policy_text(config: str) -> str:
    """Return the version policy in the text of a config.pbtxt; empty without one.

    Raises:
        PbtxtError: The text's braces are not balanced, or it is too large.

    >>> policy_text('name: "m" version_policy { all { } }')
    'version_policy { all { } }'
    """
    span = _policy_span(config)
    return "" if span is None else config[slice(*span)]


def _policy_span(config: str) -> tuple[int, int] | None:
    """Return where the version policy begins and ends in a text; None without one.

    Raises:
        PbtxtError: The text's braces are not balanced, or it is too large.
    """
    require_plausible_size(config, "config.pbtxt")
    position = locate_fields(config, "config.pbtxt").positions.get(_FIELD)
    return None if position is None else (_offset(config, position), _end_of_message(config, position))


def _end_of_message(text: str, name: Position) -> int:
    """Return the offset after the message of the field whose name is at ``name``."""
    depth = 0
    for token in tokens(text):
        if token.position <= name:
            continue
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth == 0 and token.text in _CLOSING:
            return _offset(text, token.position) + 1
    return len(text)


def _offset(text: str, position: Position) -> int:
    """Return the offset of a position in the text."""
    lines = text.split("\n")
    return sum(len(line) + 1 for line in islice(lines, position.line - 1)) + position.column - 1
