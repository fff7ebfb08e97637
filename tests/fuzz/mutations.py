"""Mutations of inputs: bytes, JSON values, protobuf messages, members of archives, and tables of databases."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import struct
import warnings
import zipfile
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from google.protobuf.message import Message

Mutator: TypeAlias = "Callable[[Random, bytes, Sequence[bytes]], bytes]"
"""A random generator, an input, and all inputs of the pool -> a new input."""

_INTEGERS = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**64 - 1,
)
_NUMBERS = (*_INTEGERS, -1, -2, -(2**31), -(2**63), 0.5, 10**30, 10**400)
_RAW_JSON = (
    "NaN", "Infinity", "-Infinity", "1e400", "-0.0", "1e-400", "9" * 5000, "-" + "9" * 400, "[" * 500 + "]" * 500,
    '{"a":' * 500 + "1" + "}" * 500, '"\\ud800"', '"\\u0000"', '"a\\u0000b"', '"\\udfff\\ud800"', "nul", "",
)  # fmt: skip
_TEXTS = (
    "", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "x" * 300, "x" * 5000, "é", "\u202e", "\n", "-1", "1e9", "?",
    "9" * 400, "9" * 5000, "9223372036854775808", "true", "null", "model.onnx", "{}", "[]", "%s", "${x}", "{{ x }}",
)  # fmt: skip
_MAX_DEPTH = 40


class Raw(str):
    """JSON text that is written unchanged."""

    __slots__ = ()


def bytes_mutator(words: Sequence[bytes] = (), *, most: int = 5) -> Mutator:
    """Return a mutator that changes, removes, repeats and inserts bytes, and words of the format."""

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        content = bytearray(data)
        for _ in range(rng.randint(1, most)):
            _change_bytes(rng, content, pool, words)
        return bytes(content)

    return mutate


def _change_bytes(  # noqa: C901 - one case for each kind of change
    rng: Random, content: bytearray, pool: Sequence[bytes], words: Sequence[bytes]
) -> None:
    at, length = rng.randint(0, len(content)), rng.choice((0, 1, 1, 2, 4, 8, 30, 200))
    part = bytes(content[at : at + length])
    match rng.randrange(9):
        case 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        case 1:
            content[at : at + length] = b""
        case 2:
            content[at:at] = part * rng.choice((1, 2, 50, 500))
        case 3:
            content[at : at + length] = rng.choice(words) if words else rng.randbytes(length)
        case 4:
            content[at:at] = (rng.choice(words) if words else rng.randbytes(4)) * rng.choice((1, 1, 1, 3, 1000))
        case 5:
            width = rng.choice((1, 2, 4, 8))
            content[at : at + width] = (rng.choice(_INTEGERS) % 256**width).to_bytes(
                width, rng.choice(("little", "big"))
            )
        case 6:
            other = rng.choice(pool)
            start = rng.randint(0, len(other))
            content[at : at + length] = other[start : start + rng.choice((4, 20, 200, 2000))]
        case 7:
            del content[at:]
        case _:
            if at < len(content):
                content[at] ^= 1 << rng.randrange(8)


def mutate_value(rng: Random, value: Any, depth: int = 0) -> Any:  # noqa: C901 - one case for each kind of change
    """Return a JSON value with one part changed, removed, repeated or moved."""
    if depth < _MAX_DEPTH and isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        changed = dict(value)
        match rng.randrange(12):
            case 0:
                del changed[key]
            case 1:
                changed[rng.choice(_TEXTS)] = changed.pop(key)
            case 2:
                changed[rng.choice(_TEXTS)] = hostile_value(rng)
            case 3:
                changed[key] = rng.choice(list(value.values()))
            case _:
                changed[key] = mutate_value(rng, value[key], depth + 1)
        return changed
    if depth < _MAX_DEPTH and isinstance(value, list) and value and rng.random() < 0.85:
        index, changed_list = rng.randrange(len(value)), list(value)
        match rng.randrange(8):
            case 0:
                del changed_list[index]
            case 1:
                changed_list[index:index] = [value[index]] * rng.choice((1, 3, 200))
            case 2:
                changed_list.append(hostile_value(rng))
            case _:
                changed_list[index] = mutate_value(rng, value[index], depth + 1)
        return changed_list
    return hostile_value(rng, value)


def hostile_value(rng: Random, value: Any = None) -> Any:  # noqa: PLR0911 - one case for each kind of value
    """Return a value that readers may not expect, often of the same type as ``value``."""
    match rng.randrange(8):
        case 0:
            return Raw(rng.choice(_RAW_JSON))
        case 1:
            return rng.choice((None, True, False, [], {}, [[]], [{}], {"": {}}))
        case 2:
            return [value]
        case 3:
            return {rng.choice(_TEXTS): value}
        case 4 | 5 if isinstance(value, (int, float)):
            return rng.choice(_NUMBERS)
        case 4 | 5 if isinstance(value, str) and value:
            cut = rng.randrange(len(value))
            return value[:cut] + rng.choice(_TEXTS) + value[cut + rng.randrange(3) :]
        case 6:
            return rng.choice(_TEXTS)
        case _:
            return rng.choice(_NUMBERS)


def json_text(rng: Random, value: Any) -> str:
    """Return a value as JSON; raw parts are unchanged, and some keys are repeated."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        items = [f"{json.dumps(str(key))}: {json_text(rng, child)}" for key, child in value.items()]
        if items and rng.random() < 0.02:
            items.append(rng.choice(items))
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json_text(rng, child) for child in value) + "]"
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value) if value < 0 and rng.random() < 0.01 else _digits(value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError):  # a date of YAML
        return json.dumps(str(value))


def _digits(value: int) -> str:
    return f"1{'0' * 400}" if value == 10**400 else str(value)


def json_mutator(words: Sequence[bytes] = ()) -> Mutator:
    """Return a mutator of JSON texts, which are also YAML: of the value, or of the bytes."""
    by_bytes = bytes_mutator((*words, b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\u0000", b"9" * 400))

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        if rng.random() < 0.25:
            return by_bytes(rng, data, pool)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return by_bytes(rng, data, pool)
        if _is_large(value):
            return by_bytes(rng, data, pool)
        for _ in range(rng.choice((1, 1, 2, 4))):
            value = mutate_value(rng, value)
        return json_text(rng, value).encode("utf-8", "surrogatepass")

    return mutate


def yaml_mutator(words: Sequence[bytes] = ()) -> Mutator:
    """Return a mutator of YAML texts: of the value, which becomes JSON, or of the bytes."""
    indicators = (
        b": ",
        b"- ",
        b"\n",
        b"  ",
        b"&a ",
        b"*a",
        b"!!str ",
        b"!!int ",
        b"<<: ",
        b"---\n",
        b"|\n",
        b">\n",
        b"? ",
    )
    bomb = (
        b"[&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c], [*d,*d,*d]]"
    )
    by_bytes = bytes_mutator(
        (*words, *indicators, bomb, b"&r [*r]", b"[" * 100, b"{a: " * 100, b"2024-01-01", b"0x1F", b"9" * 400)
    )

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        if len(data) < 20_000 and rng.random() < 0.5:
            try:
                value = yaml.load(data, Loader=yaml.CSafeLoader)
            except Exception:  # noqa: BLE001 - PyYAML raises any exception for damaged scalars
                return by_bytes(rng, data, pool)
            if not _is_large(value):
                for _ in range(rng.choice((1, 1, 2, 4))):
                    value = mutate_value(rng, value)
                return json_text(rng, value).encode("utf-8", "surrogatepass")
        return by_bytes(rng, data, pool)

    return mutate


def _is_large(value: Any, depth: int = 0) -> bool:
    """Return whether a value is nested deeply, as one that contains itself, or has many elements."""
    count, stack = 0, [(value, depth)]
    while stack:
        current, level = stack.pop()
        count += 1
        if level > _MAX_DEPTH or count > 5000:
            return True
        children = current.values() if isinstance(current, dict) else current if isinstance(current, list) else ()
        stack += [(child, level + 1) for child in children]
    return False


def message_mutator(new: Callable[[], Message], also: Mutator) -> Mutator:
    """Return a mutator of serialized messages of one type: of their fields, or of their bytes."""

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        if rng.random() < 0.3:
            return also(rng, data, pool)
        message = new()
        try:
            message.ParseFromString(data)
        except DecodeError:
            return also(rng, data, pool)
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            mutate_message(rng, message)
        return bytes(message.SerializeToString())

    return mutate


def mutate_message(rng: Random, message: Message, depth: int = 0) -> None:
    """Change, remove or repeat one field of a message or of a message in it."""
    present: list[Any] = [field for field, _ in message.ListFields()]
    nested = [field for field in present if field.message_type is not None]
    if nested and depth < 12 and rng.random() < 0.8:
        field = rng.choice(nested)
        children = getattr(message, field.name)
        if not field.is_repeated:
            mutate_message(rng, children, depth + 1)
            return
        if field.message_type.GetOptions().map_entry:
            return
        index = rng.randrange(len(children))
        match rng.randrange(10):
            case 0:
                del children[index]
            case 1:
                for _ in range(rng.choice((1, 2, 60))):
                    children.add().CopyFrom(children[index])
            case _:
                mutate_message(rng, children[index], depth + 1)
        return
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    if fields:
        _set_field(rng, message, rng.choice(present if present and rng.random() < 0.6 else fields))


def _set_field(rng: Random, message: Message, field: Any) -> None:
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif field.message_type is not None:
        if not field.message_type.GetOptions().map_entry:
            child = getattr(message, field.name)
            child = child.add() if field.is_repeated else child
            child.SetInParent()
            if rng.random() < 0.7:
                mutate_message(rng, child, 11)
    elif field.is_repeated:
        values = getattr(message, field.name)
        values.extend([_scalar(rng, field)] * rng.choice((1, 1, 2, 100)))
    else:
        setattr(message, field.name, _scalar(rng, field))


def _scalar(rng: Random, field: Any) -> Any:
    if field.enum_type is not None:
        return rng.choice(list(field.enum_type.values_by_number))
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.choice((0, 1, 4, 100)))
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice((*_TEXTS, "x", "y", "w"))
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    bits = 32 if field.cpp_type in {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32} else 64
    signed = field.cpp_type in {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
    value = int(rng.choice((*_INTEGERS, -1, -2, -(2**31), -(2**63)))) % 2**bits
    return value - 2**bits if signed and value >= 2 ** (bits - 1) else value


def zip_mutator(member: Mutator, names: Sequence[str], words: Sequence[bytes] = ()) -> Mutator:
    """Return a mutator of zip archives: of members, of their names and compression, of headers, and of bytes.

    Args:
        member: Mutates the contents of a member.
        names: Names that readers look for.
        words: Bytes to insert anywhere.
    """
    by_bytes = bytes_mutator(
        (*words, b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"), most=3
    )

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        members = _members(data)
        if members is None or rng.random() < 0.2:
            return by_bytes(rng, data, pool)
        for _ in range(rng.choice((1, 1, 2, 3))):
            _change_members(rng, members, member, names)
        written = _archive(rng, members)
        return _change_headers(rng, written) if rng.random() < 0.3 else written

    return mutate


def _members(data: bytes) -> list[tuple[str, bytes]] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > 4_000_000 or len(infos) > 500:
                return None
            return [(info.filename, archive.read(info)) for info in infos]
    except Exception:  # noqa: BLE001 - any damaged archive; its bytes are mutated instead
        return None


def _change_members(rng: Random, members: list[tuple[str, bytes]], member: Mutator, names: Sequence[str]) -> None:
    if not members:
        members.append((rng.choice(names), b""))
        return
    index = rng.randrange(len(members))
    name, content = members[index]
    match rng.randrange(10):
        case 0:
            del members[index]
        case 1:
            members.append((name, member(rng, content, [content])))  # a second member of this name
        case 2:
            members[index] = (rng.choice(names), content)
        case 3:
            members.append((rng.choice((*names, name + "/", "../" + name, "/" + name, "a\0b", "x" * 300)), content))
        case 4:
            members[index] = (name, b"\0" * rng.choice((0, 1, 1_000_000, 20_000_000)))
        case _:
            members[index] = (name, member(rng, content, [entry for _, entry in members]))


def _archive(rng: Random, members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    kinds = (
        zipfile.ZIP_STORED,
        zipfile.ZIP_STORED,
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_BZIP2,
        zipfile.ZIP_LZMA,
    )
    kind = rng.choice(kinds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in members:
                large = len(content) > 500_000 and kind == zipfile.ZIP_STORED
                archive.writestr(name or "x", content, zipfile.ZIP_DEFLATED if large else kind)
    return buffer.getvalue()


def _change_headers(rng: Random, data: bytes) -> bytes:
    """Change a field in the headers of a zip archive: sizes, offsets, flags, compression, versions."""
    content = bytearray(data)
    signature, fields = rng.choice(
        (
            (b"PK\x01\x02", ((6, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4))),
            (b"PK\x03\x04", ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))),
            (b"PK\x05\x06", ((4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2))),
        )
    )
    places = (
        [at for at in range(len(content) - 4) if content.startswith(signature, at)] if len(content) < 200_000 else []
    )
    if places:
        at, (offset, width) = rng.choice(places), rng.choice(fields)
        value = rng.choice((*_INTEGERS, 8, 9, 12, 14, 20, 45, 63, 93, 99, 0x800, 0x801)) % 256**width
        content[at + offset : at + offset + width] = value.to_bytes(width, "little")
    return bytes(content)


def header_mutator(header: Mutator, words: Sequence[bytes] = ()) -> Mutator:
    """Return a mutator of safetensors files: of the JSON header, of its declared size, or of the bytes."""
    by_bytes = bytes_mutator(words)

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > len(data) or rng.random() < 0.2:
            return by_bytes(rng, data, pool)
        text, body = header(rng, data[8 : 8 + size], pool), data[8 + size :]
        if rng.random() < 0.1:
            body = body[: rng.randint(0, len(body))]
        length = rng.choice(_INTEGERS) % 2**64 if rng.random() < 0.1 else len(text)
        return struct.pack("<Q", length) + text + body

    return mutate


def array_mutator() -> Mutator:
    """Return a mutator of ``.npy`` files: of shape, dtype and version in the header, or of the bytes."""
    by_bytes = bytes_mutator(
        (b"(1099511627776,)", b"|O", b"<U1000000", b"True", b"((((((", b"------", b"{'descr':", b"fortran_order")
    )
    descriptors = ("<f4", "|O", "|V8", "<U9", "<U999999999", "|S0", "<U0", "<M8[ns]", "(2,3)<f4", "<f4,<f4",
                   "[('a', '<f4')]", ">f8", "|b1", "<c16", "<f2", "x", "", "<f3", "|O8", "T", "f4" * 3000)  # fmt: skip
    shapes = ("()", "(0,)", "(2, 3)", "(1099511627776,)", "(4294967296, 4294967296)", "(-1,)",
              "(0, 4611686018427387904)",
              "(2" + ", 1" * 70 + ")", "(True,)", "(1.5,)", "None", "(" * 300 + ")" * 300, "-" * 3000 + "1", "[2, 3]",
              "(" + "9" * 400 + ",)", "(" + "9" * 5000 + ",)", "'x'", "(2, 'a')", "{}", "1" + "+1j")  # fmt: skip

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        if rng.random() < 0.3:
            return by_bytes(rng, data, pool)
        descriptor, order = rng.choice(descriptors), rng.choice(("False", "True", "1", "None"))
        quoted = descriptor if descriptor.startswith("[") else repr(descriptor)
        text = f"{{'descr': {quoted}, 'fortran_order': {order}, 'shape': {rng.choice(shapes)}, }}"
        if rng.random() < 0.1:
            text = text.replace("'shape'", rng.choice(("'shap'", "b'shape'", "1", "'shape': 1, 'x'")))
        content = (text.ljust(rng.choice((0, 118))) + "\n").encode()
        version = rng.choice(((1, 0), (1, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 0), (255, 255)))
        width = 2 if version == (1, 0) else 4
        length = len(content) if rng.random() < 0.9 else rng.choice(_INTEGERS)
        size = (length % 256**width).to_bytes(width, "little")
        body = rng.randbytes(rng.choice((0, 4, 24, 100)))
        return b"".join((b"\x93NUMPY", bytes(version), size, content, body))

    return mutate


def tar_mutator(names: Sequence[str]) -> Mutator:
    """Return a mutator of tar archives, also compressed ones: of headers, with their checksums, or of the bytes.

    Args:
        names: Names that readers look for.
    """
    by_bytes = bytes_mutator(
        (b"ustar\x0000", b"ustar  \0", bytes(512), b"13 path=models\n", b"GNU.sparse.size="), most=3
    )

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        content = bytearray(_uncompressed(data))
        if rng.random() < 0.2:
            content = bytearray(by_bytes(rng, bytes(content), pool))
        for _ in range(rng.choice((1, 1, 2, 3))):
            _change_tar_header(rng, content, names)
        written = bytes(content)
        return gzip.compress(written, 1) if rng.random() < 0.2 else written

    return mutate


def _uncompressed(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, 1_000_000) if data.startswith(b"\x1f\x8b") else data
    except zlib.error:
        return data


def _change_tar_header(rng: Random, content: bytearray, names: Sequence[str]) -> None:
    starts = [at for at in range(0, len(content) - 511, 512) if content[at + 257 : at + 262] == b"ustar"]
    if not starts:
        return
    at = rng.choice(starts)
    name = rng.choice((*names, *_TEXTS)).encode("utf-8", "surrogateescape")
    octal = b"%o" % (rng.choice(_INTEGERS) % 2**33)
    kind = rng.choice(b"01235678xgLKSDVz")
    start, width, value = rng.choice(
        (
            (0, 100, name),
            (0, 100, name),
            (157, 100, name),
            (345, 155, name),
            (124, 12, rng.choice((octal, b"\x80" + rng.randbytes(11), b"-1", b"\xff" * 12))),
            (136, 12, octal),
            (100, 8, octal),
            (156, 1, bytes([kind])),
            (257, 8, rng.choice((b"ustar\x0000", b"ustar  \0"))),
        )
    )
    content[at + start : at + start + width] = value[:width].ljust(width, b"\0")
    if rng.random() < 0.3:  # the same header once more
        content[at:at] = content[at : at + 512]
    content[at + 148 : at + 156] = b" " * 8
    content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])


def database_mutator() -> Mutator:
    """Return a mutator of SQLite databases: of values in their tables, of their tables, or of the bytes."""
    by_bytes = bytes_mutator((b"SQLite format 3\0", b"\xff" * 4, bytes(16)), most=3)

    def mutate(rng: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
        if rng.random() < 0.4:
            return by_bytes(rng, data, pool)
        with closing(sqlite3.connect(":memory:")) as database:
            try:
                database.deserialize(data)
                for _ in range(rng.choice((1, 1, 2, 4))):
                    _change_database(rng, database)
                database.commit()
                return database.serialize()
            except (sqlite3.Error, OverflowError, UnicodeError, MemoryError, IndexError):
                return by_bytes(rng, data, pool)

    return mutate


def _change_database(rng: Random, database: sqlite3.Connection) -> None:
    table = rng.choice([name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")])
    column = rng.choice([row[1] for row in database.execute(f'PRAGMA table_info("{table}")')])
    row = f'rowid = (SELECT rowid FROM "{table}" ORDER BY random() LIMIT 1)'  # noqa: S608 - a name of the database
    match rng.randrange(10):
        case 0:
            database.execute(f'DROP TABLE "{table}"')
        case 1:
            database.execute(f'DELETE FROM "{table}" WHERE {row}')  # noqa: S608 - as above
        case 2:
            database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        case _:
            values = [value for (value,) in database.execute(f'SELECT "{column}" FROM "{table}"')]  # noqa: S608 - as above
            new = _database_value(rng, rng.choice(values) if values else None)
            database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {row}', (new,))  # noqa: S608 - as above


def _database_value(rng: Random, old: Any) -> int | float | str | None:
    if isinstance(old, str) and old.startswith(("{", '"', "[")) and rng.random() < 0.7:
        try:
            return json_text(rng, mutate_value(rng, json.loads(old)))
        except (ValueError, RecursionError):
            return old[: rng.randrange(len(old))]
    new = hostile_value(rng, old)
    return new if isinstance(new, (int, float, str, type(None))) else json.dumps(new, default=str)
