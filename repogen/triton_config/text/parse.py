"""Text to protobuf and strings to text, by protobuf's own rules."""

from __future__ import annotations

import re
import warnings
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from repogen.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message
    from tritonclient.grpc.model_config_pb2 import ModelConfig as ModelConfig  # noqa: PLC0414 - others import it here


_NO_FIELD = re.compile(r'Message type "(?P<message>[\w.]+)" has no field named "(?P<field>[^"]*)"')


class PbtxtError(ConfigError):
    """A text is not a ModelConfig (exit 5).

    Attributes:
        line: Line of the text, counted from 1; 0 when the whole text is meant.
        column: Column, counted from 1.
    """

    default_code = "config.syntax"
    line = column = 0

    def __init__(self, message: str, hint: str, *, line: int = 0, column: int = 0, where: str = "") -> None:
        """Keep the place apart from the message."""
        super().__init__(message, hint, where=where)
        self.line = line
        self.column = column


def parse(text: str, origin: str) -> ModelConfig:
    """Read a config.pbtxt.

    Args:
        text: The file's text.
        origin: What the text is, for messages: a path or ``rendered config.pbtxt.j2``.

    Returns:
        tritonclient's ``inference.ModelConfig`` message.

    Raises:
        PbtxtError: Not a ModelConfig; the message names ``origin:line:column``.
    """
    from google.protobuf import text_format  # noqa: PLC0415 - `repogen --help` must not pay for gRPC
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message  # noqa: PLC0415

    if text.startswith("\N{BYTE ORDER MARK}"):
        raise PbtxtError(
            f"{origin} begins with a UTF-8 byte order mark, which Triton refuses",
            "save the file as UTF-8 without BOM",
            line=1,
            column=1,
            where=f"{origin}:1:1",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an escape that Python does not know, which is told of as an error
            return text_format.Parse(text, Message())
    except text_format.ParseError as error:
        line, column = error.GetLine() or 0, error.GetColumn() or 0
        what = str(error).removeprefix(f"{line}:{column} : ")
        hint = _nearest(what) or "see Triton's model_configuration.md for the fields of config.pbtxt"
        raise PbtxtError(
            f"{origin}:{line}:{column}: {what}",
            hint,
            line=line,
            column=column,
            where=f"{origin}:{line}:{column}",
        ) from error


def _nearest(what: str) -> str:
    """Return the field that a misspelled one may stand for, as a hint; empty when nothing is near."""
    from google.protobuf.descriptor_pool import Default  # noqa: PLC0415 - as above

    match = _NO_FIELD.search(what)
    if match is None:
        return ""
    fields = Default().FindMessageTypeByName(match["message"]).fields_by_name
    near = get_close_matches(match["field"], fields, n=1)
    return f"did you mean {near[0]}?" if near else f"it has {', '.join(fields)}"


def empty_config() -> ModelConfig:
    """Return tritonclient's message with nothing set, to be filled field by field."""
    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message  # noqa: PLC0415 - as above

    return Message()


def quoted(text: str) -> str:
    r"""Return ``text`` as a string literal of protobuf's text format.

    What can be seen stays as it is, as UTF-8; controls, bidirectional marks and line separators become escapes, so
    that an editor shows what a parser reads.

    Raises:
        ConfigError: ``text`` holds a lone surrogate, which UTF-8 cannot carry.

    >>> quoted('a "b"\n')
    '"a \\"b\\"\\n"'
    """
    from google.protobuf.text_encoding import CEscape  # noqa: PLC0415 - as above

    try:
        return '"' + "".join(CEscape(char.encode(), char.isprintable()) for char in text) + '"'
    except UnicodeEncodeError as error:
        raise ConfigError(f"the name {text!r} cannot be written as UTF-8", "rename it", code="config.name") from error


def message_text(message: Message) -> str:
    """Return a message as a person would write it: two spaces a level, short lists on a line, a gap between fields.

    The same message gives the same text; maps are sorted by key. A ``kind`` is written even where it is the first of
    its enum, which protobuf takes for nothing to be said.
    """
    return "\n\n".join("\n".join(_field(field, value)) for field, value in message.ListFields())


def _field(field: FieldDescriptor, value: Any) -> Iterator[str]:  # noqa: ANN401 - of any field's type
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        for key in sorted(value):
            yield from _entry(field, key, value[key])
    elif kind is not None:
        for child in value if field.is_repeated else [value]:
            yield from _block(field.name, _lines(child))
    elif field.is_repeated:
        yield f"{field.name}: [ {', '.join(_scalar(field, item) for item in value)} ]"
    else:
        yield f"{field.name}: {_scalar(field, value)}"


def _lines(message: Message) -> list[str]:
    said: list[tuple[Any, Any]] = list(message.ListFields())
    kind = message.DESCRIPTOR.fields_by_name.get("kind")
    if kind is not None and kind.enum_type is not None and not any(field.name == "kind" for field, _ in said):
        said.append((kind, 0))
        said.sort(key=lambda pair: pair[0].number)
    return [line for field, value in said for line in _field(field, value)]


def _block(name: str, inside: list[str]) -> Iterator[str]:
    if not inside:
        yield f"{name} {{ }}"
        return
    if len(inside) == 1 and "{" not in inside[0]:
        yield f"{name} {{ {inside[0]} }}"
        return
    yield f"{name} {{"
    yield from (f"  {line}" for line in inside)
    yield "}"


def _entry(field: FieldDescriptor, key: object, value: object) -> Iterator[str]:
    """Yield a map's entry: its key, then its value."""
    kinds: Any = field.message_type and field.message_type.fields_by_name
    first = f"key: {_scalar(kinds['key'], key)}"
    if kinds["value"].message_type is None:
        yield f"{field.name} {{ {first} value: {_scalar(kinds['value'], value)} }}"
        return
    inside = _lines(value)  # type: ignore[arg-type] # a message, as its descriptor says
    if len(inside) == 1 and "{" not in inside[0]:
        yield f"{field.name} {{ {first} value {{ {inside[0]} }} }}"
        return
    yield f"{field.name} {{"
    yield f"  {first}"
    yield from (f"  {line}" for line in _block("value", inside))
    yield "}"


def _scalar(field: FieldDescriptor, value: object) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)  # type: ignore[index] # a number, as it says
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)
