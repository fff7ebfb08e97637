"""Detects what a forward changes: in its module, in the objects of the module, and in the user's files."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from repogen.source.torch.objects import (
    ABSENT,
    MEMORY,
    PLAIN,
    Entry,
    copy_of_iterator,
    copy_of_memory,
    entries_of,
    is_iterator,
    is_user_code,
    position_of,
    replace_entries,
    same_memory,
    write,
    write_memory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from repogen.source.torch.objects import Entries, PlaceKey

_MAX_OBJECTS, _MAX_DEPTH, _MAX_NUMBERS = 200_000, 50, 10_000_000
"""Objects of a snapshot, their distance from its start, and numbers of an array outside of the module."""
_LIBRARIES = ("types", "collections", "functools", "weakref", "queue", "torch.distributions")
"""Libraries, of Python and of torch, whose objects are followed."""
_OFFSET = 1000
_STEPS = 997
"""Steps of an iterator; not a multiple of the length of a short cycle."""
_MULTIPLE = 126_000
"""A multiple of most numbers of calls after which a model may do something else: of 2 to 10, 12, 100 and 1000."""
PHASES = 3
"""How many values of counters around such a multiple are tried."""


@dataclass(frozen=True)
class Change:
    """A place whose value differs between two snapshots.

    Attributes:
        path: Its name, for messages.
        owner: The object with the place.
        token: Identifies the place in the owner.
        old: The value in the first snapshot; ABSENT if the place is new.
        new: The entry in the second snapshot; its value is ABSENT if the place does not exist anymore.
        inside: Whether it belongs to the module.
    """

    path: str
    owner: Any
    token: PlaceKey
    old: Any
    new: Entry
    inside: bool

    @property
    def is_parameter(self) -> bool:
        """Whether it is a parameter."""
        return isinstance(self.new.value, torch.nn.Parameter)

    @property
    def is_buffer(self) -> bool:
        """Whether it is a buffer of a module."""
        return self.token[0] == "_buffers"

    @property
    def is_array(self) -> bool:
        """Whether it is a tensor or an array with other values, and of the same shape.

        A table that grows with the longest input has another shape, and its values do not depend on the inputs.
        """
        value = self.new.value
        return isinstance(value, (torch.Tensor, np.ndarray)) and getattr(self.old, "shape", None) == value.shape


class Snapshot:
    """The values in a module, in its objects, and in the user's files that it belongs to.

    Args:
        module: The module.
        root: Directory of the spec, which contains files of the user.
    """

    def __init__(self, module: torch.nn.Module, root: Path) -> None:
        """Follow the objects from the module, and then from the files."""
        self.roots: dict[str, Any] = {"": module}
        self.entries: dict[int, Entries] = {}
        self.memory: dict[int, Any] = {}
        self.positions: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._copies: dict[int, Any] = {}
        directory = f"{root.resolve()}/"
        self._files = [
            name
            for name, loaded in list(sys.modules.items())
            if str(getattr(loaded, "__file__", "")).startswith(directory) and is_user_code(name)
        ]
        self._classes: list[type] = []
        self._follow(module, inside=True)
        self.inside = frozenset(self.entries)
        while self._files or self._classes:
            start: Any = sys.modules[self._files.pop()] if self._files else self._classes.pop()
            name = start.__name__ if isinstance(start, ModuleType) else f"{start.__module__}.{start.__qualname__}"
            if name not in self.roots:
                self.roots[name] = start
                self._follow(start, inside=False)

    def _follow(self, start: object, *, inside: bool) -> None:
        """Record the values in an object, in their values, and so on; the nearest objects first."""
        queue: deque[tuple[Any, int]] = deque([(start, 0)])
        while queue and len(self.entries) < _MAX_OBJECTS:
            value, depth = queue.popleft()
            if isinstance(value, PLAIN) or id(value) in self._objects or depth > _MAX_DEPTH:
                continue
            if isinstance(value, MEMORY):
                self._record_memory(value, inside=inside)
            elif is_iterator(value):
                self._objects[id(value)] = value
                self.positions[id(value)], self._copies[id(value)] = position_of(value), copy_of_iterator(value)
            elif value is start or self._is_followed(value, inside=inside):
                self._objects[id(value)] = value
                self.entries[id(value)] = entries = entries_of(value)
                queue.extend((entry.value, depth + 1) for entry in entries.values())

    def _record_memory(self, value: Any, *, inside: bool) -> None:  # noqa: ANN401
        numbers = value.numel() if isinstance(value, torch.Tensor) else np.size(value)
        if inside or numbers <= _MAX_NUMBERS:
            self._objects[id(value)] = value
            self.memory[id(value)] = copy_of_memory(value)

    def _is_followed(self, value: Any, *, inside: bool) -> bool:  # noqa: ANN401
        """Return whether an object is followed: not one of the libraries; files and classes are noted for later."""
        if isinstance(value, ModuleType):
            self._note(value.__name__)
            return False
        is_definition = isinstance(value, (FunctionType, type))
        owner = value if is_definition else type(value)
        is_users = self._note(owner.__module__)
        if is_definition:
            return is_users
        self._classes += [cls for cls in type(value).__mro__ if is_user_code(cls.__module__)]
        if is_users or isinstance(value, torch.nn.Module) or owner.__module__ == "builtins":
            return True
        library = owner.__module__.partition(".")[0]
        is_basic = library == "torch" or library in sys.stdlib_module_names
        return owner.__module__.startswith(_LIBRARIES) if is_basic else inside

    def _note(self, name: str) -> bool:
        """Add one of the user's files; return whether it is one."""
        if not is_user_code(name):
            return False
        self._files.append(name)
        return True

    def restore(self) -> None:
        """Give all objects the values that they had."""
        for identity, entries in self.entries.items():
            replace_entries(self._objects[identity], self._with_iterators(entries))
        for identity, contents in self.memory.items():
            value = self._objects[identity]
            if not isinstance(value, torch.nn.Parameter) and not same_memory(copy_of_memory(value), contents):
                write_memory(value, contents)

    def _with_iterators(self, entries: Entries) -> Entries:
        """Return the values with new iterators in place of those that have advanced."""
        advanced = {
            token: entry._replace(value=copy_of_iterator(self._copies[id(entry.value)]))
            for token, entry in entries.items()
            if id(entry.value) in self.positions and position_of(entry.value) != self.positions[id(entry.value)]
        }
        return {**entries, **advanced}

    def owners(self) -> Iterator[tuple[Any, Entries]]:
        """Yield the objects of the module with their values."""
        return ((self._objects[identity], self.entries[identity]) for identity in self.inside)


def changes(before: Snapshot, after: Snapshot) -> list[Change]:
    """Return the places whose values differ between two snapshots."""
    return list(_Comparison(before, after).differences().values())


class _Comparison:
    """Compares two snapshots of the same roots.

    Args:
        before: The first one.
        after: The second one.
    """

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        """Store the snapshots."""
        self._before, self._after = before, after
        self._changes: dict[tuple[int, PlaceKey], Change] = {}
        self._pairs: set[tuple[int, int]] = set()

    def differences(self) -> dict[tuple[int, PlaceKey], Change]:
        """Compare the values that can be reached from each root in the same way."""
        for name, root in self._after.roots.items():
            if name in self._before.roots:
                self._compare_roots(name, self._before.roots[name], root)
        return self._changes

    def _compare_roots(self, name: str, before: object, after: object) -> None:
        queue: deque[tuple[Any, Any, str, Change | None]] = deque([(before, after, name, None)])
        while queue:
            old, new, path, place = queue.popleft()
            one, other = self._before.entries.get(id(old)), self._after.entries.get(id(new))
            if one is None or other is None or type(old) is not type(new):
                if place is not None and self._differs(old, new):
                    self._add(place)
            elif (id(old), id(new)) not in self._pairs:
                self._pairs.add((id(old), id(new)))
                for token in {**one, **other}:
                    queue.extend(self._below(new, token, (one.get(token), other.get(token)), path, place))

    def _below(
        self,
        owner: object,
        token: PlaceKey,
        pair: tuple[Entry | None, Entry | None],
        path: str,
        place: Change | None,
    ) -> Iterator[tuple[Any, Any, str, Change | None]]:
        """Yield the values at one place of two objects; a place that only one of them has is a difference."""
        one, other = pair
        entry = other or one
        if entry is None:
            return
        label = f"{path}{entry.label}".removeprefix(".")
        old, new = one.value if one else ABSENT, other or entry._replace(value=ABSENT)
        if token[0] != "fixed":  # an immutable value belongs to the place that it is in
            place = Change(label, owner, token, old, new, id(owner) in self._after.inside)
        if one is None or other is None:
            if place is not None:
                self._add(place)
        else:
            yield one.value, other.value, label, place

    def _add(self, place: Change) -> None:
        self._changes.setdefault((id(place.owner), place.token), place)

    def _differs(self, old: Any, new: Any) -> bool:  # noqa: ANN401
        """Return whether values without entries differ; objects that cannot be compared count as equal."""
        if id(old) in self._before.memory and id(new) in self._after.memory:
            return not same_memory(self._before.memory[id(old)], self._after.memory[id(new)])
        if id(old) in self._before.positions and id(new) in self._after.positions:
            return bool(self._before.positions[id(old)] != self._after.positions[id(new)])
        if isinstance(old, PLAIN) and isinstance(new, PLAIN):
            return type(old) is not type(new) or bool(old != new and not (old != old and new != new))  # noqa: PLR0124
        is_comparable = isinstance(old, (*PLAIN, *MEMORY)) or isinstance(new, (*PLAIN, *MEMORY))
        return is_comparable and type(old) is not type(new)


def counts(places: Sequence[Change]) -> bool:
    """Return whether one of the places has an integer."""
    return any(type(place.new.value) is int for place in places)


def disturb(places: Sequence[Change], phase: int = 0) -> None:
    """Change the values of numbers, tensors and containers much further in the way in which they have changed.

    Args:
        places: Where the values are.
        phase: How far integers are below a multiple of many numbers.
    """
    replacements: dict[int, Any] = {}
    for place in places:
        value = place.new.value
        if is_iterator(value):
            deque(islice(value, _STEPS), maxlen=0)
        elif value is ABSENT:
            _empty(place.owner)
        elif not place.is_parameter:
            replacement = replacements.setdefault(id(value), _disturbed(place.old, value, phase))
            write(place.owner, place.token, place.new.key, replacement)
            if place.old is ABSENT:
                _extend(place.owner, place.new.key, replacement)


def _disturbed(old: Any, new: Any, phase: int) -> Any:  # noqa: ANN401
    if isinstance(new, MEMORY):
        return _disturbed_array(new)
    if isinstance(new, (bool, np.bool_)):
        return not new
    if isinstance(new, (int, float, complex, np.number)):
        return (new // _MULTIPLE + 1) * _MULTIPLE - phase if isinstance(new, int) else new + _OFFSET
    if isinstance(new, str):
        return new + new[len(old) :] * _OFFSET if isinstance(old, str) and new.startswith(old) else new
    if isinstance(new, tuple) and type(new) is not torch.Size:
        return _disturbed_tuple(old if isinstance(old, tuple) else (), new, phase)
    return new


def _disturbed_array(new: Any) -> Any:  # noqa: ANN401
    if not isinstance(new, (torch.Tensor, np.ndarray)):
        return bytearray(~byte % 256 for byte in new) if isinstance(new, bytearray) else new
    if new.dtype in {torch.bool, np.dtype(bool)}:
        return ~new
    if isinstance(new, torch.Tensor):
        return new + _OFFSET
    return new + np.asarray(_OFFSET).astype(new.dtype) if new.dtype.kind in "iufc" else new


def _disturbed_tuple(old: tuple[Any, ...], new: tuple[Any, ...], phase: int) -> tuple[Any, ...]:
    pairs = zip((*old, *[ABSENT] * (len(new) - len(old))), new, strict=False)
    items = tuple(_disturbed(one, other, phase) if one is not other else other for one, other in pairs)
    return tuple.__new__(type(new), items + items[-1:] * (_OFFSET if len(new) > len(old) else 0))


def _extend(owner: Any, key: Any, value: Any) -> None:  # noqa: ANN401
    """Add many values to a container to which a call has added one."""
    if isinstance(owner, list):
        list.extend(owner, [value] * _OFFSET)
    elif isinstance(owner, deque):
        deque.extend(owner, [value] * _OFFSET)
    elif isinstance(owner, set):
        set.update(owner, _similar(key))
    elif isinstance(owner, dict):
        for other in _similar(key):
            dict.__setitem__(owner, other, value)


def _similar(key: Any) -> Iterable[Any]:  # noqa: ANN401
    """Yield many other values of the same type, if it is simple."""
    for i in range(1, _OFFSET):
        if isinstance(key, (int, float)):
            yield key + i
        elif isinstance(key, str):
            yield f"{key}{i}"
        else:
            yield (key, i) if isinstance(key, tuple) else object()


def _empty(owner: Any) -> None:  # noqa: ANN401
    """Empty a container from which a call has removed a value."""
    kinds: tuple[Any, ...] = (list, deque, set, dict)
    for kind in kinds:
        if isinstance(owner, kind):
            kind.clear(owner)


@dataclass(frozen=True)
class Caches:
    """What calls set in a module, with the values before all calls.

    Attributes:
        owners: The objects with their values.
        has_buffers: Whether they include a buffer.
    """

    owners: tuple[tuple[Any, Entries], ...] = ()
    has_buffers: bool = False


def caches(initial: Snapshot, once: Snapshot, other: Snapshot) -> Caches:
    """Return the initial values of what calls set in a module, if some of it depends on the size of the inputs.

    Without these values, an exporter would read a table that a call of another size has kept, as a constant. A table
    that is the same after each call stays: it may be computed in a way that cannot be exported.

    Args:
        initial: The snapshot before all calls.
        once: The snapshot after a call.
        other: The snapshot after calls of other sizes.
    """
    if not any(place.inside for place in changes(once, other)):
        return Caches()
    owners = []
    has_buffers = False
    for owner, entries in initial.owners():
        earlier = {
            token: entry._replace(value=_initial_value(initial, entry.value, (once, other)))
            for token, entry in entries.items()
        }
        updated = [
            token
            for snapshot in (once, other)
            for token in _different_tokens(earlier, snapshot.entries.get(id(owner), earlier))
        ]
        if updated:
            owners.append((owner, earlier))
            has_buffers |= any(part == "_buffers" for part, _ in updated)
    return Caches(tuple(owners), has_buffers)


def _different_tokens(one: Entries, other: Entries) -> list[PlaceKey]:
    """Return the places at which two versions of an object do not have the same object."""
    return [
        token
        for token in {**one, **other}
        if token not in one or token not in other or one[token].value is not other[token].value
    ]


def _initial_value(initial: Snapshot, value: Any, later: tuple[Snapshot, Snapshot]) -> Any:  # noqa: ANN401
    """Return a value, or a copy of a tensor that was written in place."""
    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
        return value
    contents = initial.memory.get(id(value))
    is_same = all(same_memory(contents, each.memory[id(value)]) for each in later if id(value) in each.memory)
    return value if is_same else contents


@contextmanager
def temporary(values: Caches) -> Iterator[None]:
    """Set values within the block, without copies of tensors, which a trace would contain."""
    current = [(owner, entries_of(owner)) for owner, _ in values.owners]
    for owner, entries in values.owners:
        replace_entries(owner, entries)
    try:
        yield
    finally:
        for owner, entries in current:
            replace_entries(owner, entries)
