"""Where each field of a config.pbtxt stands: protobuf's own parser keeps no places."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from repogen.triton_config.text.parse import PbtxtError, empty_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)"
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"|(?P<word>[A-Za-z0-9_.+-]+)|(?P<sign>.)",
    re.DOTALL,
)
# Python's int() takes them, C++'s tokenizer does not.
_NO_NUMBER = re.compile(r"\+.*|-?[0-9][0-9_]*_.*")
_CLOSES = {"{": "}", "<": ">"}
# C++'s parser sets no limit; nothing in ModelConfig is half as deep.
_DEEPEST = 64


class Place(NamedTuple):
    """A place in a text; line and column count from 1."""

    line: int
    column: int


class Token(NamedTuple):
    """A word, a sign or a string, and where it begins."""

    text: str
    place: Place


@dataclass
class Fields:
    """The fields of a text.

    Attributes:
        places: Path (``input[0].dims[1]``) -> the place of the field's name, or of the value in a list.
        known: (message, field or enum value) -> its first place, for each that the schema has.
    """

    places: dict[str, Place] = field(default_factory=dict)
    known: dict[tuple[str, str], Place] = field(default_factory=dict)

    def place(self, path: str) -> Place:
        """Return the place of ``path``, or of the nearest part of it that stands in the text."""
        while path:
            found = self.places.get(path) or self.places.get(f"{path}[0]")
            if found is not None:
                return found
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return Place(1, 1)


def fields_of(text: str, origin: str) -> Fields:
    """Find every field of a config's text.

    Args:
        text: The file's text.
        origin: What the text is, for messages.

    Raises:
        PbtxtError: Its braces do not close, or it goes too deep.
    """
    found = Fields()
    given = list(tokens(text))
    for token in given:
        if token.text[0] not in "\"'" and not token.text.isascii():  # protobuf's Python takes some of them for space
            raise _wrong(origin, token.place, f"{token.text!r} stands outside of strings and comments", "remove it")
    _Reader(given, found, origin).message("", empty_config().DESCRIPTOR, "", 0)
    return found


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a text; comments and space are none."""
    line, begin = 1, 0
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            yield Token(match[0], Place(line, match.start() - begin + 1))
        breaks = match[0].count("\n")
        if breaks:
            line += breaks
            begin = match.start() + match[0].rindex("\n") + 1


class _Reader:
    """Walks the tokens by text format's grammar; what is wrong beyond braces is left to protobuf to tell."""

    def __init__(self, given: list[Token], found: Fields, origin: str) -> None:
        self._tokens = given
        self._at = 0
        self._found = found
        self._origin = origin

    def message(self, path: str, schema: Descriptor | None, closing: str, depth: int) -> None:
        """Read fields until ``closing``, or to the end of the text where it is empty."""
        if depth > _DEEPEST:
            raise self._wrong(f"messages stand more than {_DEEPEST} deep in each other")
        counts: dict[str, int] = {}
        while (token := self._next()) is not None:
            if token.text == closing:
                return
            if token.text in {",", ";"}:
                continue
            self._field(token, path, schema, counts, depth)
        if closing:
            raise self._wrong(f"{path or 'the text'} ends without {closing!r}")

    def _field(self, name: Token, path: str, schema: Descriptor | None, counts: dict[str, int], depth: int) -> None:
        kind = schema.fields_by_name.get(name.text) if schema is not None else None
        if schema is not None and kind is not None:
            self._found.known.setdefault((schema.full_name, name.text), name.place)
        here = f"{path}.{name.text}".lstrip(".")
        if self._peek() == ":":
            self._next()
        if self._peek() != "[":
            self._value(self._numbered(here, kind, counts), name.place, kind, depth)
            return
        self._next()
        while (item := self._peek()) not in {"]", None}:
            if item == ",":
                self._next()
                continue
            self._value(self._numbered(here, kind, counts), self._tokens[self._at].place, kind, depth)
        self._next()
        self._found.places.setdefault(here, name.place)

    @staticmethod
    def _numbered(here: str, kind: FieldDescriptor | None, counts: dict[str, int]) -> str:
        if kind is None or not kind.is_repeated:
            return here
        counts[here] = counts.get(here, -1) + 1
        return f"{here}[{counts[here]}]"

    def _value(self, path: str, place: Place, kind: FieldDescriptor | None, depth: int) -> None:
        self._found.places.setdefault(path, place)
        token = self._next()
        if token is None:
            raise self._wrong(f"{path} has no value")
        if _NO_NUMBER.fullmatch(token.text):
            raise self._wrong(f"{token.text} is no number", "write digits only")
        if token.text in _CLOSES:
            self.message(path, kind.message_type if kind is not None else None, _CLOSES[token.text], depth + 1)
            return
        if kind is not None and kind.enum_type is not None and token.text in kind.enum_type.values_by_name:
            self._found.known.setdefault((kind.enum_type.full_name, token.text), token.place)
        while token.text[0] in "\"'" and (self._peek() or " ")[0] in "\"'":  # strings side by side are one
            self._next()
            token = self._tokens[self._at - 1]

    def _next(self) -> Token | None:
        if self._at >= len(self._tokens):
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str | None:
        return self._tokens[self._at].text if self._at < len(self._tokens) else None

    def _wrong(self, what: str, hint: str = "close what was opened") -> PbtxtError:
        last = self._tokens[min(self._at, len(self._tokens)) - 1].place if self._tokens else Place(1, 1)
        return _wrong(self._origin, last, what, hint)


def _wrong(origin: str, place: Place, what: str, hint: str) -> PbtxtError:
    where = f"{origin}:{place.line}:{place.column}"
    return PbtxtError(f"{where}: {what}", hint, line=place.line, column=place.column, where=where)
