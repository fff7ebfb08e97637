"""Comparison of two ModelConfig messages, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

# A missing value has a meaning in these fields: 0 disables batching, no reshape keeps the shape.
_MEANINGFUL_IF_MISSING = frozenset({"max_batch_size", "reshape", "shape"})


def differences(expected: Message, actual: Message) -> list[str]:
    """Return one line for each field that ``expected`` sets and that differs in ``actual``.

    Fields that ``expected`` does not set may have any value, because a server fills in defaults and a template may add
    a block. Lists must have the same length.

    Args:
        expected: The requested configuration.
        actual: The configuration of a text or a server.
    """
    return list(_differences(expected, actual, ""))


def _differences(expected: Message, actual: Message, path: str) -> Iterator[str]:
    for field in expected.DESCRIPTOR.fields:
        field_path = f"{path}.{field.name}".lstrip(".")
        if not _is_set(expected, field.name):
            if field.name in _MEANINGFUL_IF_MISSING and _is_set(actual, field.name):
                yield f"{field_path}: expected no value, found {_value_text(actual, field.name)}"
        elif not _is_set(actual, field.name):
            yield f"{field_path}: expected {_value_text(expected, field.name)}, found no value"
        else:
            yield from _value_differences(expected, actual, field.name, field_path)


def _value_differences(expected: Message, actual: Message, name: str, path: str) -> Iterator[str]:
    expected_value, actual_value = getattr(expected, name), getattr(actual, name)
    if isinstance(expected_value, Message):
        yield from _differences(expected_value, actual_value, path)
    elif _is_message_list(expected, name):
        if len(expected_value) != len(actual_value):
            yield f"{path}: expected length {len(expected_value)}, found length {len(actual_value)}"
            return
        for index, (expected_item, actual_item) in enumerate(zip(expected_value, actual_value, strict=True)):
            yield from _differences(expected_item, actual_item, f"{path}[{index}]")
    elif expected_value != actual_value:
        yield f"{path}: expected {_value_text(expected, name)}, found {_value_text(actual, name)}"


def _is_message_list(message: Message, name: str) -> bool:
    kind = message.DESCRIPTOR.fields_by_name[name].message_type
    return kind is not None and not kind.GetOptions().map_entry


def _is_set(message: Message, name: str) -> bool:
    """Return whether a message field is present, or another field differs from proto3's default."""
    value = getattr(message, name)
    return message.HasField(name) if isinstance(value, Message) else bool(value)


def _value_text(message: Message, name: str) -> str:
    value = getattr(message, name)
    enum = message.DESCRIPTOR.fields_by_name[name].enum_type
    if enum is not None and isinstance(value, int):
        return enum.values_by_number[value].name
    if isinstance(value, (str, int, float)):
        return repr(value)
    return " ".join(str(value).split()) or "{ }"
