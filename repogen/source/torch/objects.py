"""Reads and writes the values in an object, without its own properties and methods, which may do anything."""

from __future__ import annotations

import copy
import itertools
import sys
from array import array
from collections import OrderedDict, deque
from functools import _lru_cache_wrapper, partial
from types import FunctionType, GeneratorType, MemberDescriptorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn.parameter import is_lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

PLAIN = (bool, int, float, complex, str, bytes, type(None), range, np.generic, torch.dtype, torch.device)
"""Types of values that are compared, and never change."""
MEMORY = (torch.Tensor, np.ndarray, bytearray, array)
"""Types of values that are copied, compared, and written in place."""
ABSENT = object()
"""Stands for the value at a place that an object does not have."""

_MAX_ENTRIES = 10_000
"""Containers with more entries are not read."""
_TORCH_ATTRIBUTES = frozenset(vars(torch.nn.Module()))
_MODULE_PARTS = ("_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_hooks")
_ITERABLES: tuple[Any, ...] = ([], (), {}, set(), range(0), range(2**65), "", {}.values(), {}.items(), deque())
_ITERATORS = (
    *(value for value in vars(itertools).values() if isinstance(value, type)),
    *(type(iter(each)) for each in _ITERABLES),
    *(enumerate, map, zip, filter, reversed),
)
_MAX_NESTED = 8
"""Iterators in iterators."""
_NOT_USER_CODE = frozenset({"torch", "repogen", "__main__", *sys.stdlib_module_names})

PlaceKey: TypeAlias = "tuple[str, Hashable]"
Entries: TypeAlias = "dict[PlaceKey, Entry]"


class Entry(NamedTuple):
    """A value in an object.

    Attributes:
        key: Its name, index or key there.
        label: The end of its path, for messages.
        value: The value.
    """

    key: Any
    label: str
    value: Any


def is_user_code(name: str) -> bool:
    """Return whether a Python module is loaded from a file that is neither installed nor a part of Python."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and "site-packages" not in file and name.partition(".")[0] not in _NOT_USER_CODE


def entries_of(value: Any) -> Entries:  # noqa: ANN401
    """Return the values in an object; none of one without places that can be read.

    The tokens identify the same places at another time: keys of dicts by their value if they are plain, otherwise by
    their identity.
    """
    if isinstance(value, torch.jit.ScriptModule):
        return _of_script(value)
    if isinstance(value, torch.nn.Module):
        return _of_parts(value) | _of_attributes(value)
    if isinstance(value, ModuleType):
        return _of_names(vars(value), "attribute")
    if isinstance(value, type):
        return _of_names(vars(value), "class")
    if isinstance(value, FunctionType):
        return _of_function(value)
    return _of_container(value) | _of_wrapper(value) | _of_attributes(value)


def _token(key: object) -> Hashable:
    if isinstance(key, tuple):
        return tuple(map(_token, key))
    return (type(key).__name__, key) if isinstance(key, PLAIN) else id(key)


def _label(key: object) -> str:
    return repr(key) if isinstance(key, PLAIN) else type(key).__name__


def _of_container(value: Any) -> Entries:  # noqa: ANN401
    base: Any
    if not isinstance(value, (dict, list, deque, set, tuple, frozenset)) or len(value) > _MAX_ENTRIES:
        return {}
    if isinstance(value, dict):
        pairs = OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value)
        return {("item", _token(key)): Entry(key, f"[{_label(key)}]", child) for key, child in pairs}
    if isinstance(value, (set, frozenset)):
        kind, base = ("element", set) if isinstance(value, set) else ("fixed", frozenset)
        return {(kind, _token(child)): Entry(child, "", child) for child in base.__iter__(value)}
    kind = "fixed" if isinstance(value, tuple) else "index"
    base = next(each for each in (list, deque, tuple) if isinstance(value, each))
    return {(kind, i): Entry(i, f"[{i}]", child) for i, child in enumerate(base.__iter__(value))}


def _of_wrapper(value: Any) -> Entries:  # noqa: ANN401
    """Return what a method, a partial function, a property, or a function with a cache contains."""
    children: dict[str, Any] = {}
    if isinstance(value, MethodType):
        children = {"self": value.__self__, "function": value.__func__}
    elif isinstance(value, (staticmethod, classmethod)):
        children = {"function": value.__func__}
    elif isinstance(value, property):
        children = {"get": value.fget, "set": value.fset}
    elif isinstance(value, partial):
        children = {"function": value.func, "arguments": value.args, "keywords": value.keywords}
    elif isinstance(value, _lru_cache_wrapper):
        size = Entry("", ".cache", value.cache_info().currsize)
        return {("cache", ""): size, ("fixed", "function"): Entry("function", "", value.__wrapped__)}
    return {("fixed", name): Entry(name, "", child) for name, child in children.items()}


def _of_attributes(value: Any) -> Entries:  # noqa: ANN401
    entries: Entries = {}
    for cls in type(value).__mro__:
        for name, member in vars(cls).items():
            if isinstance(member, MemberDescriptorType) and cls.__module__ not in sys.stdlib_module_names:
                child = _read(member, value)
                if child is not ABSENT:
                    entries["slot", name] = Entry((cls, name), f".{name}", child)
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return entries
    omitted = _TORCH_ATTRIBUTES if isinstance(value, torch.nn.Module) else ()
    named = {name: child for name, child in dict(attributes).items() if name not in omitted}
    return entries | {("attribute", name): Entry(name, f".{name}", child) for name, child in named.items()}


def _read(member: MemberDescriptorType, value: object) -> Any:  # noqa: ANN401
    try:
        return member.__get__(value)
    except AttributeError:
        return ABSENT


def _of_parts(module: torch.nn.Module) -> Entries:
    return {
        (part, name): Entry(name, f".{name}", child)
        for part in _MODULE_PARTS
        for name, child in vars(module)[part].items()
    }


def _of_script(module: Any) -> Entries:  # noqa: ANN401
    """Return the attributes of a scripted module, which are in C++, with its buffers and submodules."""
    entries: Entries = {("_buffers", name): Entry(name, f".{name}", child) for name, child in module._buffers.items()}  # noqa: SLF001
    entries |= {("_modules", name): Entry(name, f".{name}", child) for name, child in module._modules.items()}  # noqa: SLF001
    for name in module._concrete_type.get_attributes():  # noqa: SLF001 - named_buffers omits all other attributes
        if name not in module._buffers and name not in _TORCH_ATTRIBUTES and module._c.hasattr(name):  # noqa: SLF001
            child = module._c.getattr(name)  # noqa: SLF001
            if not isinstance(child, torch.nn.Parameter):
                # A list is a copy of the one in C++.
                entries["script", name] = Entry(name, f".{name}", tuple(child) if isinstance(child, list) else child)
    return entries


def _of_names(names: Any, kind: str) -> Entries:  # noqa: ANN401
    """Return the values with a name in a file or a class; of special names, only functions."""
    return {
        (kind, name): Entry(name, f".{name}", child)
        for name, child in dict(names).items()
        if not name.startswith("__") or isinstance(child, (FunctionType, staticmethod, classmethod))
    }


def _of_function(function: FunctionType) -> Entries:
    """Return its default arguments, the variables of the function around it, and its attributes."""
    entries: Entries = {
        ("default", i): Entry(i, f" (default argument {i + 1})", child)
        for i, child in enumerate(function.__defaults__ or ())
    }
    entries |= {
        ("keyword", name): Entry(name, f" (default argument {name})", child)
        for name, child in (function.__kwdefaults__ or {}).items()
    }
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            entries["cell", name] = Entry(cell, f".{name}", cell.cell_contents)
        except ValueError:  # it is empty
            continue
    return entries | _of_attributes(function)


def write(owner: Any, token: PlaceKey, key: Any, value: Any) -> None:  # noqa: ANN401
    """Write the value of a place, or remove the place if the value is ABSENT; fixed places stay as they are."""
    writer = _WRITERS.get(token[0])
    if writer is not None:
        writer(owner, key, value)


def _write_attribute(owner: Any, key: str, value: Any) -> None:  # noqa: ANN401
    _write_item(object.__getattribute__(owner, "__dict__"), key, value)


def _write_item(owner: dict[Any, Any], key: Any, value: Any) -> None:  # noqa: ANN401
    base = OrderedDict if isinstance(owner, OrderedDict) else dict
    if value is not ABSENT:
        base.__setitem__(owner, key, value)
    elif dict.__contains__(owner, key):
        base.__delitem__(owner, key)


def _write_index(owner: Any, key: int, value: Any) -> None:  # noqa: ANN401
    base = list if isinstance(owner, list) else deque
    if value is not ABSENT and key < len(owner):
        base.__setitem__(owner, key, value)


def _write_slot(owner: Any, key: tuple[type, str], value: Any) -> None:  # noqa: ANN401
    member = vars(key[0])[key[1]]
    if value is ABSENT:
        member.__delete__(owner)
    else:
        member.__set__(owner, value)


def _write_class(owner: type, key: str, value: Any) -> None:  # noqa: ANN401
    if value is ABSENT:
        type.__delattr__(owner, key)
    else:
        type.__setattr__(owner, key, value)


def _write_default(owner: FunctionType, key: int, value: Any) -> None:  # noqa: ANN401
    defaults = list(owner.__defaults__ or ())
    defaults[key] = value
    owner.__defaults__ = tuple(defaults)


def _write_cell(_owner: FunctionType, key: Any, value: Any) -> None:  # noqa: ANN401
    if value is ABSENT:
        del key.cell_contents
    else:
        key.cell_contents = value


def _write_script(owner: Any, key: str, value: Any) -> None:  # noqa: ANN401
    is_list = isinstance(owner._c.getattr(key), list)  # noqa: SLF001
    owner._c.setattr(key, list(value) if is_list else value)  # noqa: SLF001


def _in_part(part: str) -> Callable[[Any, Any, Any], None]:
    def write_part(owner: Any, key: Any, value: Any) -> None:  # noqa: ANN401
        if isinstance(owner, torch.jit.ScriptModule):
            setattr(owner, key, value)
        else:
            _write_item(vars(owner)[part], key, value)

    return write_part


_WRITERS: dict[str, Callable[[Any, Any, Any], None]] = {
    "attribute": _write_attribute,
    "item": _write_item,
    "index": _write_index,
    "slot": _write_slot,
    "class": _write_class,
    "default": _write_default,
    "keyword": lambda owner, key, value: _write_item(owner.__kwdefaults__, key, value),
    "cell": _write_cell,
    "cache": lambda owner, _key, _value: owner.cache_clear(),
    "script": _write_script,
    **{part: _in_part(part) for part in _MODULE_PARTS},
}


def replace_entries(owner: Any, entries: Entries) -> None:  # noqa: ANN401
    """Give an object the values that it had; what is the same object already is not written."""
    current = entries_of(owner)
    identities = [[(token, id(entry.value)) for token, entry in each.items()] for each in (entries, current)]
    if identities[0] == identities[1]:
        return
    if isinstance(owner, (dict, list, deque, set)):
        _refill(owner, entries)
    for token, entry in current.items():
        if token not in entries:
            write(owner, token, entry.key, ABSENT)
    for token, entry in entries.items():
        if token not in current or (current[token].value is not entry.value and token[0] not in _REFILLED):
            write(owner, token, entry.key, entry.value)


_REFILLED = ("item", "index", "element")


def _refill(owner: Any, entries: Entries) -> None:  # noqa: ANN401
    """Give a container its earlier contents, in their order."""
    places = [entry for token, entry in entries.items() if token[0] in _REFILLED]
    if isinstance(owner, dict):
        (OrderedDict if isinstance(owner, OrderedDict) else dict).clear(owner)
        for entry in places:
            _write_item(owner, entry.key, entry.value)
        return
    base: Any = next(base for base in (list, deque, set) if isinstance(owner, base))
    base.clear(owner)
    (base.update if base is set else base.extend)(owner, [entry.value for entry in places])


def is_iterator(value: object) -> bool:
    """Return whether a value is an iterator of Python or a generator, whose position is not visible in it."""
    return isinstance(value, (*_ITERATORS, GeneratorType))


def position_of(iterator: Any, depth: int = 0) -> Hashable:  # noqa: ANN401
    """Return what changes in an iterator when it advances."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        local = {} if frame is None else frame.f_locals
        values = tuple((name, _token(each)) for name, each in local.items() if isinstance(each, PLAIN))
        return None if frame is None else (frame.f_lasti, values)
    if isinstance(iterator, PLAIN):
        return _token(iterator)
    if isinstance(iterator, (list, dict, set, deque)):
        return len(iterator)
    if isinstance(iterator, tuple) and depth < _MAX_NESTED:
        return tuple(position_of(each, depth + 1) for each in iterator)
    if isinstance(iterator, _ITERATORS) and depth < _MAX_NESTED:
        reduced: Any = iterator.__reduce__()
        return position_of(reduced[1:], depth + 1)
    return ""


def copy_of_iterator(iterator: Iterator[Any]) -> Iterator[Any]:
    """Return an iterator at the same position; the same one if it cannot be copied."""
    try:
        return copy.deepcopy(iterator)
    except Exception:  # noqa: BLE001 - whatever the objects in it raise
        return iterator


def copy_of_memory(value: Any) -> Any:  # noqa: ANN401
    """Return a copy of a tensor or an array; of a parameter, its sum, which also shows writes through ``.data``."""
    if isinstance(value, torch.nn.Parameter):
        return None if value.is_complex() or is_lazy(value) else float(value.detach().sum(dtype=torch.float64))
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.copy(value)


def same_memory(first: Any, second: Any) -> bool:  # noqa: ANN401
    """Return whether two copies are equal; NaN equals NaN."""
    if not isinstance(first, (torch.Tensor, np.ndarray)) or type(first) is not type(second):
        return type(first) is type(second) and bool(first == second or first != first)  # noqa: PLR0124 - NaN
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    try:
        return bool(np.all(np.asarray((first == second) | ((first != first) & (second != second)))))  # noqa: PLR0124
    except Exception:  # noqa: BLE001 - layouts without comparisons, and arrays of objects
        return True


def write_memory(value: Any, contents: Any) -> None:  # noqa: ANN401
    """Write a copy back in place."""
    if isinstance(value, torch.Tensor):
        if value.shape == contents.shape:
            value.data.copy_(contents)
        else:
            value.data = contents.clone()
    elif isinstance(value, np.ndarray):
        np.copyto(value, contents)
    else:
        value[:] = contents
