"""`defaults` merged under every model, and the way back from a merged value to its place in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.spec.document import Entry, Node, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.spec.models import Location
    from repogen.triton_config.sections.base import KeyPath


def merge(defaults: Node, model: Node) -> Node:
    """Return ``model`` completed from ``defaults``: mappings merge key by key, everything else replaces.

    What a list or scalar of the model replaces is gone; what only the defaults say is marked as inherited.
    """
    if not isinstance(defaults.value, dict) or not isinstance(model.value, dict):
        return model
    entries: dict[str, Entry] = dict(model.value)
    for key, default in defaults.value.items():
        own = model.value.get(key)
        if own is None:
            entries[key] = Entry(default.place, default.node, inherited=True)
        else:
            entries[key] = Entry(own.place, merge(default.node, own.node))
    return Node(model.place, entries)


def complete(root: Node) -> Node:
    """Return the whole file with ``defaults`` merged under every model of ``models``."""
    top = root.value
    if not isinstance(top, dict) or "defaults" not in top or "models" not in top:
        return root
    defaults, models = top["defaults"].node, top["models"]
    if not isinstance(models.node.value, dict):
        return root
    merged = {
        name: Entry(entry.place, merge(defaults, entry.node), entry.inherited)
        for name, entry in models.node.value.items()
    }
    return Node(root.place, {**top, "models": Entry(models.place, Node(models.node.place, merged))})


def locate(root: Node, path: KeyPath) -> tuple[Location, KeyPath]:
    """Return where the value at ``path`` (or its nearest parent) stands, and its key path as the file has it.

    Args:
        root: The completed file.
        path: Key path in it; a part that does not exist is kept in the path returned.

    Returns:
        The place of the key (of the item, in a list), and the path, which starts at ``defaults`` for what a model
        inherited.
    """
    node: Node | None = root
    place, told = root.place, path
    for part in path:
        if node is not None and isinstance(node.value, dict) and part in node.value:
            entry = node.value[str(part)]
            place, node = entry.place, entry.node
            if entry.inherited:
                told = ("defaults", *path[2:])
        elif node is not None and isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            place = node.place
        else:
            break
    return place, told


def is_refused(root: Node, path: KeyPath) -> bool:
    """Return whether the value at ``path``, or a part of it, was already refused while the text was read."""
    node = root
    for part in path:
        if isinstance(node.value, dict) and part in node.value:
            node = node.value[str(part)].node
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return False
    return _holds_refused(node)


def _holds_refused(node: Node) -> bool:
    if isinstance(node.value, dict):
        return any(_holds_refused(entry.node) for entry in node.value.values())
    if isinstance(node.value, list):
        return any(_holds_refused(item) for item in node.value)
    return isinstance(node.value, Refused)


def walk(node: Node, path: KeyPath, place: Location) -> Iterator[tuple[KeyPath, Location]]:
    """Yield the key path and place of ``node`` and of everything below it."""
    yield path, place
    if isinstance(node.value, dict):
        for key, entry in node.value.items():
            yield from walk(entry.node, (*path, key), entry.place)
    elif isinstance(node.value, list):
        for position, item in enumerate(node.value):
            yield from walk(item, (*path, position), item.place)
