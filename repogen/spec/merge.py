"""Merges `defaults` into every model, and locates merged values in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.spec.document import Entry, Node, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.spec.models import Location
    from repogen.triton_config.sections.base import KeyPath


def merge(defaults: Node, model: Node) -> Node:
    """Return ``model`` completed from ``defaults``: mappings are merged by key, lists and scalars are replaced.

    Entries that only the defaults have are marked as inherited.
    """
    if not isinstance(defaults.value, dict) or not isinstance(model.value, dict):
        return model
    entries: dict[str, Entry] = dict(model.value)
    for key, default in defaults.value.items():
        entry = model.value.get(key)
        if entry is None:
            entries[key] = Entry(default.position, default.node, inherited=True)
        else:
            entries[key] = Entry(entry.position, merge(default.node, entry.node))
    return Node(model.position, entries)


def merged_values(root: Node) -> int:
    """Return the largest number of values that ``complete`` adds to a file: those of ``defaults``, for each model."""
    top = root.value
    if not isinstance(top, dict) or "defaults" not in top or "models" not in top:
        return 0
    models = top["models"].node.value
    return top["defaults"].node.size * len(models) if isinstance(models, dict) else 0


def complete(root: Node) -> Node:
    """Return the file with ``defaults`` merged into every model of ``models``."""
    top = root.value
    if not isinstance(top, dict) or "defaults" not in top or "models" not in top:
        return root
    defaults, models = top["defaults"].node, top["models"]
    if not isinstance(models.node.value, dict):
        return root
    model_nodes = {
        name: Entry(entry.position, merge(defaults, entry.node), entry.inherited)
        for name, entry in models.node.value.items()
    }
    return Node(root.position, {**top, "models": Entry(models.position, Node(models.node.position, model_nodes))})


def locate(root: Node, path: KeyPath) -> tuple[Location, KeyPath]:
    """Return the position of the value at ``path``, or of its closest parent, and its key path in the file.

    Args:
        root: The completed file.
        path: Key path; parts that do not exist in the file are kept in the result.

    Returns:
        Position of the key, or of the item of a list; and the path, which starts at ``defaults`` for inherited values.
    """
    node: Node | None = root
    position, file_path = root.position, path
    for part in path:
        if node is not None and isinstance(node.value, dict) and part in node.value:
            entry = node.value[str(part)]
            position, node = entry.position, entry.node
            if entry.inherited:
                file_path = ("defaults", *path[2:])
        elif node is not None and isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            position = node.position
        else:
            break
    return position, file_path


def is_rejected(root: Node, path: KeyPath) -> bool:
    """Return whether the value at ``path``, or a part of it, was rejected when the text was read."""
    node = root
    for part in path:
        if isinstance(node.value, dict) and part in node.value:
            node = node.value[str(part)].node
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return False
    return _contains_rejected(node)


def _contains_rejected(node: Node) -> bool:
    if isinstance(node.value, dict):
        return any(_contains_rejected(entry.node) for entry in node.value.values())
    if isinstance(node.value, list):
        return any(_contains_rejected(item) for item in node.value)
    return isinstance(node.value, Rejected)


def walk(node: Node, path: KeyPath, position: Location) -> Iterator[tuple[KeyPath, Location]]:
    """Yield the key path and position of ``node`` and of all values in it."""
    yield path, position
    if isinstance(node.value, dict):
        for key, entry in node.value.items():
            yield from walk(entry.node, (*path, key), entry.position)
    elif isinstance(node.value, list):
        for index, item in enumerate(node.value):
            yield from walk(item, (*path, index), item.position)
