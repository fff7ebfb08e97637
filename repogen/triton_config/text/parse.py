"""config.pbtxt text to protobuf messages and back, by protobuf's own rules."""

from __future__ import annotations

import re
import sys
import warnings
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool, text_format
from google.protobuf.text_encoding import CEscape

from repogen.artifacts.file_names import MAX_CONFIG_BYTES, MAX_CONFIG_TOKENS
from repogen.artifacts.tensors import MAX_RANK
from repogen.errors import ConfigError
from repogen.files.content import ContentError, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message
    from tritonclient.grpc.model_config_pb2 import ModelConfig as ModelConfig  # noqa: PLC0414 - others import it here


TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)"
    # The closing quote is optional: a search for it from each opening quote would take quadratic time.
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)"""
    r"|(?P<word>[A-Za-z0-9_.+-]+)|(?P<sign>.)",
    re.DOTALL,
)
"""A token of protobuf's text format, or what is between two tokens."""
STRAY = re.compile("[\ud800-\udfff]")
"""A byte that is not UTF-8, as ``surrogateescape`` represents it."""
_PROTOBUF_MODULE = "tritonclient.grpc.model_config_pb2"
_UNKNOWN_FIELD = re.compile(r'Message type "(?P<message>[\w.]+)" has no field named "(?P<field>[^"]*)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "(?P<enum>[\w.]+)" has no value named "?(?P<value>\w+)"?\.\Z')


class PbtxtError(ConfigError):
    """A text that is not a ModelConfig (exit 5).

    Attributes:
        line: Line of the text, counted from 1; 0 if the error is about the whole text.
        column: Column, counted from 1.
    """

    default_code = "config.syntax"
    line = column = 0

    def __init__(self, message: str, hint: str, *, line: int = 0, column: int = 0, where: str = "") -> None:
        """Store the position separately from the message."""
        super().__init__(message, hint, where=where)
        self.line = line
        self.column = column


@cache
def model_config_pb2() -> ModuleType:
    """Return tritonclient's protobuf classes of ModelConfig without importing gRPC.

    ``import tritonclient.grpc.model_config_pb2`` first runs ``tritonclient/grpc/__init__.py``, which imports gRPC and
    NumPy: ten times the cost of the module itself, which every command that loads a spec would pay. The generated file
    imports protobuf only, so it is loaded by its path. Its classes belong to protobuf's default descriptor pool: a
    later ordinary import returns the same classes.
    """
    package = find_spec("tritonclient")
    folders = [str(Path(folder) / "grpc") for folder in (package and package.submodule_search_locations) or ()]
    spec = PathFinder.find_spec(_PROTOBUF_MODULE, folders)
    if _PROTOBUF_MODULE in sys.modules or spec is None or spec.loader is None:
        return import_module(_PROTOBUF_MODULE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def empty_config() -> ModelConfig:
    """Return a ModelConfig message with no field set."""
    return model_config_pb2().ModelConfig()


def decode_config(content: bytes) -> str:
    r"""Return the text of a config.pbtxt. In comments, a byte that is not UTF-8 is replaced: Triton ignores them.

    >>> decode_config(b"# caf\xe9\nname: 'caf\xc3\xa9'")
    "# caf?\nname: 'café'"

    Raises:
        UnicodeDecodeError: Another part is not UTF-8.
    """
    text = content.decode(errors="surrogateescape")
    if STRAY.search(text):
        text = TOKEN.sub(lambda token: STRAY.sub("?", token[0]) if token["space"] else token[0], text)
    return text.encode(errors="surrogateescape").decode()


def read_config_text(path: Path, origin: str) -> str:
    """Return the text of a config.pbtxt as Triton reads it: a carriage return does not end a comment.

    Args:
        path: The file.
        origin: Its name for messages.

    Raises:
        PbtxtError: It is larger than 1 MiB, or not UTF-8, except for comments.
        OSError: It can't be read.
    """
    try:
        return decode_config(read_bytes(path, MAX_CONFIG_BYTES))
    except (ContentError, UnicodeDecodeError) as error:
        problem = error if isinstance(error, ContentError) else "is not UTF-8"
        raise PbtxtError(
            f"{origin} {problem}", "a config is usually a few kilobytes of UTF-8 text", where=origin
        ) from error


def parse_file(path: Path, origin: str) -> ModelConfig:
    """Parse a config.pbtxt; see ``read_config_text`` and ``parse``.

    Raises:
        PbtxtError: It is larger than 1 MiB, not UTF-8, or not a ModelConfig.
        OSError: It can't be read.
    """
    return parse(read_config_text(path, origin), origin)


def parse(text: str, origin: str) -> ModelConfig:
    """Parse a config.pbtxt.

    Args:
        text: The file's text.
        origin: Name of the text for messages: a path or ``rendered config.pbtxt.j2``.

    Returns:
        An ``inference.ModelConfig`` message.

    Raises:
        PbtxtError: Not a ModelConfig, and the message names ``origin:line:column``; or too large; or a tensor has
            very many dims.
    """
    require_plausible_size(text, origin)
    if text.startswith("\N{BYTE ORDER MARK}"):
        raise PbtxtError(
            f"{origin} begins with a UTF-8 byte order mark, which Triton rejects",
            "save the file as UTF-8 without BOM",
            line=1,
            column=1,
            where=f"{origin}:1:1",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape, which is also reported as an error
            config = text_format.Parse(text, empty_config())
    except text_format.ParseError as error:
        line, column = error.GetLine() or 0, error.GetColumn() or 0
        message = str(error).removeprefix(f"{line}:{column} : ")
        where = f"{origin}:{line}:{column}"
        hint = _name_hint(message) or "see Triton's model_configuration.md for the fields of config.pbtxt"
        raise PbtxtError(f"{where}: {message}", hint, line=line, column=column, where=where) from error
    except ValueError as error:  # the number of an enum is not checked by the parser, which then has no position
        hint = "write the name of the value, such as TYPE_FP32"
        raise PbtxtError(f"{origin}: {error}", hint, line=1, column=1, where=f"{origin}:1:1") from error
    if (rank := max(map(len, _shapes(config)), default=0)) > MAX_RANK:
        hint = "check that this is the right file: no runtime supports such a tensor"
        raise PbtxtError(f"{origin} has a tensor with {rank} dims; the limit is {MAX_RANK}", hint, where=origin)
    return config


def _shapes(config: ModelConfig) -> Iterator[Sequence[int]]:
    """Yield the dims of every tensor of a config; rules compare those of one with those of many others."""
    for tensor in chain(config.input, config.output):
        yield from (tensor.dims, tensor.reshape.shape)
    for warmup in config.model_warmup:
        yield from (value.dims for value in warmup.inputs.values())
    for state in config.sequence_batching.state:
        yield from (state.dims, *(initial.dims for initial in state.initial_state))


def require_plausible_size(text: str, origin: str) -> None:
    """Require a config that is not much larger than any real one; see ``oversize_reason``.

    Raises:
        PbtxtError: It is.
    """
    if reason := oversize_reason(text):
        raise PbtxtError(f"{origin} {reason}", "check that this is the right file", where=origin)


def oversize_reason(text: str) -> str:
    """Return why a config is not parsed; empty if its size is plausible. Triton has no such limit."""
    if len(text) <= MAX_CONFIG_TOKENS:
        return ""
    count = sum(match.lastgroup != "space" for match in TOKEN.finditer(text))
    if count <= MAX_CONFIG_TOKENS:
        return ""
    return f"has more than {MAX_CONFIG_TOKENS:,} tokens (words, punctuation and strings)"


def _name_hint(message: str) -> str:
    """Return the hint for an unknown field or value: the closest name, or all names; empty for other errors."""
    if match := _UNKNOWN_FIELD.match(message):
        fields = descriptor_pool.Default().FindMessageTypeByName(match["message"]).fields_by_name
        return _closest_hint(match["field"], list(fields), "fields")
    if match := _UNKNOWN_VALUE.search(message):
        values = descriptor_pool.Default().FindEnumTypeByName(match["enum"]).values_by_name
        return _closest_hint(match["value"].upper(), list(values), "values")
    return ""


def _closest_hint(name: str, names: list[str], kind: str) -> str:
    closest = get_close_matches(name, names, n=1)
    return f"did you mean {closest[0]}?" if closest else f"its {kind} are {', '.join(names)}"


def quoted(text: str) -> str:
    r"""Return ``text`` as a string literal of protobuf's text format.

    Printable characters stay UTF-8; control characters, bidirectional marks and line separators become escapes, so
    that an editor displays what a parser reads.

    Raises:
        ConfigError: ``text`` contains a lone surrogate, which UTF-8 cannot encode.

    >>> quoted('a "b"\n')
    '"a \\"b\\"\\n"'
    """
    try:
        return '"' + "".join(CEscape(char.encode(), char.isprintable()) for char in text) + '"'
    except UnicodeEncodeError as error:
        raise ConfigError(f"the name {text!r} cannot be written as UTF-8", "rename it", code="config.name") from error


def message_text(message: Message) -> str:
    """Return a message in text format: two spaces per level, short lists on one line, a blank line between fields.

    The same message gives the same text: maps are sorted by key. A ``kind`` is written even if it is the first value
    of its enum, which protobuf does not distinguish from a missing field.
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
    fields: list[tuple[Any, Any]] = list(message.ListFields())
    kind = message.DESCRIPTOR.fields_by_name.get("kind")
    if kind is not None and kind.enum_type is not None and not any(field.name == "kind" for field, _ in fields):
        fields.append((kind, 0))
        fields.sort(key=lambda pair: pair[0].number)
    return [line for field, value in fields for line in _field(field, value)]


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
    """Yield the lines of a map entry: its key, then its value."""
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
