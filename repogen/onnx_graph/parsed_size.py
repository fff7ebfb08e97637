"""Bounds the memory that an ONNX file needs once it is parsed.

An empty message has two bytes in a file and up to 200 in memory, so parsing a file of 100 MB could need 10 GB.

Source of the format: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes in memory, at most, as measured with protobuf 6.33; arrays grow in steps.
_MESSAGE_BYTES = 208
_NUMBER_BYTES = 20
_TEXT_BYTES = 40
_EXPANSION = _MESSAGE_BYTES // 2
"""Maximum bytes in memory for each byte of a message; the shortest message has two bytes: its field and its size."""
_LARGE_MESSAGE = 4096
_MAX_DEPTH = 100
"""Of messages in messages; protobuf's parser reads no more."""
_MIN_RUN = 64
_MAX_BLOCK = 2**16
_VARINT, _TEXT = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
_NUMBERS = frozenset({_VARINT, *_FIXED_BYTES})
_MORE = 0x80
_INTEGER_BYTES = {
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64), 20),
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_ENUM), 10),
}


@dataclass(frozen=True, eq=False)
class _Type:
    """A type of message.

    Attributes:
        messages: Types of the fields that are messages, by number.
        integers: Bytes in memory of one integer in a list, by number of the field.
    """

    messages: dict[int, _Type] = field(default_factory=dict)
    integers: dict[int, int] = field(default_factory=dict)


def needs_more_memory(content: bytes, limit: int) -> bool:
    """Return whether a serialized ``ModelProto`` could need more than ``limit`` bytes of memory once it is parsed.

    Usually few messages are read: a file whose large messages are weights, or a small file, is below the limit whatever
    the other messages contain. A truncated file is read up to the error.
    """
    if _EXPANSION * len(content) <= limit:
        return False
    for smallest in (_LARGE_MESSAGE, 0):
        counted, possible = _parsed_bytes(content, limit, smallest)
        if counted > limit or counted + possible <= limit:
            break
    return counted + possible > limit


def _parsed_bytes(content: bytes, limit: int, smallest: int) -> tuple[int, int]:
    """Return the memory of the parts of a ``ModelProto`` that are read, and an upper bound for that of the others.

    The scan ends when the former is above ``limit``.

    Args:
        content: The serialized message.
        limit: As for ``needs_more_memory``.
        smallest: Messages with fewer bytes are not read; their size is multiplied by the maximum expansion.
    """
    counted, possible, readers = _MESSAGE_BYTES, 0, [_fields(content, 0, len(content), _model_type())]
    with suppress(IndexError):  # truncated
        while readers and counted <= limit:
            part = next(readers[-1], None)
            if part is None:
                readers.pop()
                continue
            message, first, last, memory = part
            counted += memory
            if message is None:
                continue
            if last - first >= smallest and len(readers) < _MAX_DEPTH:
                readers.append(_fields(content, first, last, message))
            else:
                possible += _EXPANSION * (last - first)
    return counted, possible


def _fields(content: bytes, position: int, end: int, kind: _Type) -> Iterator[tuple[_Type | None, int, int, int]]:
    """Yield the type of each field in a message, None for other values; where it begins and ends; and its memory.

    Consecutive numbers of one field are yielded together, because decision trees have millions of them.

    Raises:
        IndexError: The message is truncated.
    """
    repeated, length = -1, 0
    while position < end:
        key, first = content[position], position + 1
        if key & _MORE:
            key, first = _varint(content, position)
        if key & 7 == _TEXT:
            size = content[first]
            first += 1
            if size & _MORE:
                size, first = _varint(content, first - 1)
            position = first + size
            if position > end:
                raise IndexError
            message = kind.messages.get(key >> 3)
            memory = _MESSAGE_BYTES if message else _text_bytes(content, first, size, kind.integers.get(key >> 3, 0))
            yield message, first, position, memory
            continue
        position = _end_of_number(content, first, key & 7)
        yield None, first, position, _NUMBER_BYTES
        length = length + 1 if key == repeated else 1
        repeated = key
        if length >= _MIN_RUN and position < end and key < _MORE and key & 7 in _NUMBERS:
            count, position = _run(content, position, end, key)
            length = _MIN_RUN if count else 0
            yield None, first, position, count * _NUMBER_BYTES


def _end_of_number(content: bytes, first: int, kind: int) -> int:
    if kind == _VARINT:
        return first + 1 if content[first] < _MORE else _varint(content, first)[1]
    return first + _FIXED_BYTES.get(kind, 0)  # a group has no value of its own


def _text_bytes(content: bytes, first: int, size: int, integer_bytes: int) -> int:
    """Return the memory of a text; or of integers, each of which ends with a byte without the bit for more."""
    if not integer_bytes:
        return _TEXT_BYTES + size
    values = np.frombuffer(content, np.uint8, size, first)
    return _TEXT_BYTES + integer_bytes * int(np.count_nonzero(values < _MORE))


def _run(content: bytes, start: int, end: int, key: int) -> tuple[int, int]:
    """Return how many numbers of one field follow, within the next block, and where they end.

    Args:
        content: The file.
        start: Where the first of them would begin.
        end: End of the message.
        key: Key of the field, which has one byte.
    """
    block = np.frombuffer(content, np.uint8, min(end - start, _MAX_BLOCK), start)
    if size := _FIXED_BYTES.get(key & 7):
        ends = np.arange(size, len(block), size + 1)
        matches = block[ends - size] == key
    else:
        last_bytes = np.flatnonzero(block < _MORE)  # of keys and values alternately, if there are no other fields
        ends = last_bytes[1::2]
        keys, starts = last_bytes[: 2 * len(ends) : 2], np.zeros_like(ends)
        starts[1:] = ends[:-1] + 1
        matches = (keys == starts) & (block[keys] == key)
    count = len(matches) if matches.all() else int(matches.argmin())
    return count, start + (int(ends[count - 1]) + 1 if count else 0)


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Return an integer of any length, and the position after it.

    Raises:
        IndexError: It has more than 64 bits, or the file ends.
    """
    value, shift = 0, 0
    while (byte := content[position]) & _MORE:
        value |= (byte & ~_MORE) << shift
        shift += 7
        position += 1
        if shift > 63:  # noqa: PLR2004 - of a 64-bit number
            raise IndexError
    return value | byte << shift, position + 1


@cache
def _model_type() -> _Type:
    return _type_of(onnx.ModelProto.DESCRIPTOR, {})


def _type_of(descriptor: Any, types: dict[str, _Type]) -> _Type:  # noqa: ANN401 - of protobuf
    """Return the type of a message, which can contain itself."""
    if descriptor.full_name not in types:
        types[descriptor.full_name] = kind = _Type()
        for each in descriptor.fields:
            if each.message_type is not None:
                kind.messages[each.number] = _type_of(each.message_type, types)
            elif each.type in _INTEGER_BYTES:
                kind.integers[each.number] = _INTEGER_BYTES[each.type]
    return types[descriptor.full_name]
