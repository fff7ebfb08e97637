"""Source positions of the fields in a config.pbtxt, which protobuf's own parser does not keep."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.text_encoding import CUnescape

from repogen.triton_config.text.parse import TOKEN, PbtxtError, empty_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

# Python's int() accepts these; C++'s tokenizer does not.
_NOT_A_NUMBER = re.compile(r"\+.*|-?[0-9][0-9_]*_.*")
_CLOSING = {"{": "}", "<": ">"}
# C++'s parser has no limit; ModelConfig's own messages nest less than half as deep.
_MAX_DEPTH = 64
_MAX_NAME = 100
"""Characters of a field's name, which is in the path of every field below it."""


class Position(NamedTuple):
    """A position in a text; line and column are counted from 1."""

    line: int
    column: int


class Token(NamedTuple):
    """A word, sign or string, and the position and offset of its first character."""

    text: str
    position: Position
    offset: int

    @property
    def end(self) -> int:
        """The offset after its last character."""
        return self.offset + len(self.text)

    @property
    def is_string(self) -> bool:
        """Whether it is a quoted string."""
        return self.text[0] in "\"'"


@dataclass
class SourceMap:
    """Positions of a config's fields.

    Attributes:
        positions: Field path (``input[0].dims[1]``, ``parameters["name"]``) -> position of the field's name, or of the
            value in a list.
        schema_fields: (message, field or enum value) -> position of its first use, for each that the schema contains.
        spans: Field path without its own index (``input[0].dims``) -> start and end offset of each of its occurrences,
            from its name to the end of its value.
    """

    positions: dict[str, Position] = field(default_factory=dict)
    schema_fields: dict[tuple[str, str], Position] = field(default_factory=dict)
    spans: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def position(self, path: str) -> Position:
        """Return the position of ``path``, or of its closest parent in the text."""
        while path:
            position = self.positions.get(path) or self.positions.get(f"{path}[0]")
            if position is not None:
                return position
            path = parent_path(path)
        return Position(1, 1)


def entry_path(path: str, key: object) -> str:
    """Return the path of a map's entry.

    >>> entry_path("parameters", "a"), entry_path("priority_queue_policy", 1)
    ('parameters["a"]', 'priority_queue_policy["1"]')
    """
    return f"{path}[{json.dumps(str(key))}]"


def parent_path(path: str) -> str:
    """Return the path without its last part; empty for a top-level field.

    >>> parent_path("input[0].dims"), parent_path('parameters["a.b[0]"]'), parent_path("name")
    ('input[0]', 'parameters', '')
    """
    if path.endswith('"]'):
        return path[: path.index('["')]
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def locate_fields(text: str, origin: str) -> SourceMap:
    """Return the positions of all fields in a config's text.

    Args:
        text: The file's text.
        origin: Name of the text for messages.

    Raises:
        PbtxtError: A brace is not closed, messages are nested too deeply, or a name is longer than any field's.
    """
    source_map = SourceMap()
    all_tokens = list(tokens(text))
    for token in all_tokens:
        if not token.is_string and not token.text.isascii():  # protobuf's Python parser treats some as white space
            raise _error(origin, token.position, f"{token.text!r} outside of strings and comments", "remove it")
    _Reader(all_tokens, source_map, origin).message("", empty_config().DESCRIPTOR, "", 0)
    return source_map


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, without comments and white space."""
    line, line_start = 1, 0
    for match in TOKEN.finditer(text):
        if match.lastgroup != "space":
            yield Token(match[0], Position(line, match.start() - line_start + 1), match.start())
        breaks = match[0].count("\n")
        if breaks:
            line += breaks
            line_start = match.start() + match[0].rindex("\n") + 1


class _Reader:
    """Reads tokens by the grammar of text format; errors other than unbalanced braces are reported by protobuf."""

    def __init__(self, all_tokens: list[Token], source_map: SourceMap, origin: str) -> None:
        self._tokens = all_tokens
        self._next_index = 0
        self._map = source_map
        self._origin = origin

    def message(self, path: str, schema: Descriptor | None, closing: str, depth: int) -> None:
        """Read fields until ``closing``, or until the end of the text if it is empty."""
        if depth > _MAX_DEPTH:
            raise self._error(f"messages are nested more than {_MAX_DEPTH} levels deep", "remove levels of nesting")
        counts: dict[str, int] = {}
        while (token := self._next()) is not None:
            if token.text == closing:
                return
            if token.text in {",", ";"}:
                continue
            self._field(token, path, schema, counts, depth)
        if closing:
            raise self._error(f"{path or 'the text'} ends without {closing!r}", f"add the missing {closing!r}")

    def _field(self, name: Token, parent: str, schema: Descriptor | None, counts: dict[str, int], depth: int) -> None:
        if len(name.text) > _MAX_NAME:
            raise self._error(f"{name.text[:_MAX_NAME]}… is not the name of a field", "correct it")
        kind = schema.fields_by_name.get(name.text) if schema is not None else None
        if schema is not None and kind is not None:
            self._map.schema_fields.setdefault((schema.full_name, name.text), name.position)
        path = f"{parent}.{name.text}".lstrip(".")
        if self._peek() == ":":
            self._next()
        if self._peek() != "[":
            self._value(self._item_path(path, kind, counts), name.position, kind, depth)
        else:
            self._list(path, name.position, kind, counts, depth)
        end = self._tokens[self._next_index - 1].end
        self._map.spans.setdefault(path, []).append((name.offset, end))

    def _list(
        self, path: str, start: Position, kind: FieldDescriptor | None, counts: dict[str, int], depth: int
    ) -> None:
        self._next()
        while (item := self._peek()) not in {"]", None}:
            if item == ",":
                self._next()
                continue
            position = self._tokens[self._next_index].position
            self._value(self._item_path(path, kind, counts), position, kind, depth)
        self._next()
        self._map.positions.setdefault(path, start)

    @staticmethod
    def _item_path(path: str, kind: FieldDescriptor | None, counts: dict[str, int]) -> str:
        if kind is None or not kind.is_repeated:
            return path
        counts[path] = counts.get(path, -1) + 1
        return f"{path}[{counts[path]}]"

    def _value(self, path: str, position: Position, kind: FieldDescriptor | None, depth: int) -> None:
        self._map.positions.setdefault(path, position)
        token = self._next()
        if token is None:
            raise self._error(f"{path} has no value", "add a value, or remove the field")
        if _NOT_A_NUMBER.fullmatch(token.text):
            raise self._error(f"{token.text} is not a number", "write digits only")
        if token.text in _CLOSING:
            start = self._next_index
            self.message(path, kind.message_type if kind is not None else None, _CLOSING[token.text], depth + 1)
            if kind is not None and kind.message_type is not None and kind.message_type.GetOptions().map_entry:
                self._map_entry(path, self._tokens[start : self._next_index], position)
            return
        if kind is not None and kind.enum_type is not None and token.text in kind.enum_type.values_by_name:
            self._map.schema_fields.setdefault((kind.enum_type.full_name, token.text), token.position)
        while token.is_string and (self._peek() or " ")[0] in "\"'":  # adjacent strings are one value
            self._next()
            token = self._tokens[self._next_index - 1]

    def _map_entry(self, path: str, inside: list[Token], position: Position) -> None:
        """Add the path of a map entry by its key: protobuf does not keep the order of a map's entries."""
        name = next((index for index, token in enumerate(inside) if token.text == "key"), len(inside))
        values = [token for token in inside[name + 1 :] if token.text != ":"]
        key = values[0].text if values else ""
        strings = [token.text[1:-1] for token in _leading_strings(values)]
        try:
            if strings:
                key = b"".join(CUnescape(string) for string in strings).decode(errors="replace")
        except ValueError:
            return  # an invalid escape, which protobuf reports
        self._map.positions[entry_path(parent_path(path), key)] = position  # the last entry with a key is used

    def _next(self) -> Token | None:
        if self._next_index >= len(self._tokens):
            return None
        self._next_index += 1
        return self._tokens[self._next_index - 1]

    def _peek(self) -> str | None:
        return self._tokens[self._next_index].text if self._next_index < len(self._tokens) else None

    def _error(self, message: str, hint: str) -> PbtxtError:
        last_position = (
            self._tokens[min(self._next_index, len(self._tokens)) - 1].position if self._tokens else Position(1, 1)
        )
        return _error(self._origin, last_position, message, hint)


def _leading_strings(values: list[Token]) -> Iterator[Token]:
    for token in values:
        if not token.is_string:
            return
        yield token


def _error(origin: str, position: Position, message: str, hint: str) -> PbtxtError:
    where = f"{origin}:{position.line}:{position.column}"
    return PbtxtError(f"{where}: {message}", hint, line=position.line, column=position.column, where=where)
