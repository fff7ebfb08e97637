"""Two ModelConfigs, field by field: is what was meant really there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

# These mean something when left out: 0 is "does not batch", no reshape is "as it is". So an addition is a difference.
_TOLD_BY_ABSENCE = frozenset({"max_batch_size", "reshape", "shape"})


def differences(meant: Message, found: Message) -> list[str]:
    """Return every field that ``meant`` sets and ``found`` has otherwise, one line each.

    Fields that ``meant`` leaves out may be anything: a server fills in defaults, a template may add a block. Lists
    must have the same length.

    Args:
        meant: What was asked for.
        found: What a text or a server says.
    """
    return list(_walk(meant, found, ""))


def _walk(meant: Message, found: Message, path: str) -> Iterator[str]:
    for field in meant.DESCRIPTOR.fields:
        here = f"{path}.{field.name}".lstrip(".")
        if not _is_set(meant, field.name):
            if field.name in _TOLD_BY_ABSENCE and _is_set(found, field.name):
                yield f"{here}: meant to be left out, found {_shown(found, field.name)}"
        elif not _is_set(found, field.name):
            yield f"{here}: meant {_shown(meant, field.name)}, found nothing"
        else:
            yield from _both(meant, found, field.name, here)


def _both(meant: Message, found: Message, name: str, here: str) -> Iterator[str]:
    wanted, got = getattr(meant, name), getattr(found, name)
    if isinstance(wanted, Message):
        yield from _walk(wanted, got, here)
    elif _holds_messages(meant, name):
        if len(wanted) != len(got):
            yield f"{here}: meant {len(wanted)} of them, found {len(got)}"
            return
        for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
            yield from _walk(one, other, f"{here}[{index}]")
    elif wanted != got:
        yield f"{here}: meant {_shown(meant, name)}, found {_shown(found, name)}"


def _holds_messages(message: Message, name: str) -> bool:
    kind = message.DESCRIPTOR.fields_by_name[name].message_type
    return kind is not None and not kind.GetOptions().map_entry


def _is_set(message: Message, name: str) -> bool:
    """Presence of a message, else "not the default": in proto3, scalars, lists and maps know no other."""
    value = getattr(message, name)
    return message.HasField(name) if isinstance(value, Message) else bool(value)


def _shown(message: Message, name: str) -> str:
    value = getattr(message, name)
    enum = message.DESCRIPTOR.fields_by_name[name].enum_type
    if enum is not None and isinstance(value, int):
        return enum.values_by_number[value].name
    if isinstance(value, (str, int, float)):
        return repr(value)
    return " ".join(str(value).split()) or "{ }"
