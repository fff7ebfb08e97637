"""A case of the zoo: how its files are made, its spec entry, and what is true of it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Entry = dict[str, Any]

# The bounds that a dim has wherever nothing else is said, by name.
_BOUNDS = {
    "batch": (1, 8),
    "sequence": (1, 24),
    "target": (1, 12),
    "time": (2, 12),
    "double": (4, 24),
    "nodes": (4, 16),
    "edges": (4, 32),
    "height": (32, 64),
    "width": (32, 64),
    "samples": (400, 800),
}


@dataclass(frozen=True)
class Case:
    """One model.

    Attributes:
        name: Name of the case, of its model, and of the directory that its own files are in.
        entry: The spec entry; its paths start at the project's directory.
        expected: ``batch`` (published, max_batch_size > 0), ``single`` (published with 0), or ``refused:CODE``, where
            several codes that are as true as each other stand with ``|`` between them.
        why: Why that is so, in one line.
        files: Writes the case's own files into the directory it is given.
        twin: A spec entry with the inputs that the plain script is told of, where ``entry`` needs none.
    """

    name: str
    entry: Entry
    expected: str
    why: str
    files: Callable[[Path], None] | None = None
    twin: Entry = field(default_factory=dict)

    @property
    def codes(self) -> tuple[str, ...]:
        """The error codes that are right; none when the model is to be published."""
        kind, _, codes = self.expected.partition(":")
        return tuple(codes.split("|")) if kind == "refused" else ()

    def is_right(self, verdict: str) -> bool:
        """Whether a verdict of repogen is the true one, its error's code included."""
        kind, _, code = verdict.partition(":")
        return kind == self.expected.partition(":")[0] and (not self.codes or code in self.codes)

    def is_right_without_reason(self, verdict: str) -> bool:
        """Whether a plain script's verdict is the true one; it gives no reasons to compare."""
        return verdict == self.expected.partition(":")[0]


def signature(bounds: dict[str, tuple[int, int]] | None = None, /, **inputs: str) -> Entry:
    """Return ``inputs`` and ``dims`` of a spec entry.

    Args:
        bounds: Lowest and highest size of dims where they are not the zoo's own.
        inputs: By name, ``dtype size… [low..high]``: ``"int64 batch sequence 0..98"``.
    """
    declared: Entry = {}
    for name, text in inputs.items():
        dtype, *sizes = text.split()
        declared[name] = {"dtype": dtype}
        if sizes and ".." in sizes[-1]:
            low, _, high = sizes.pop().partition("..")
            declared[name]["range"] = [int(low), int(high)]
        declared[name]["shape"] = [int(size) if size.isdigit() else size for size in sizes]
    names = {size for spec in declared.values() for size in spec["shape"] if isinstance(size, str)}
    known = {**_BOUNDS, **(bounds or {})}
    dims = {name: {"min": known[name][0], "max": known[name][1]} for name in sorted(names)}
    return {"inputs": declared, **({"dims": dims} if dims else {})}


def ranges(*names: str) -> Entry:
    """Return ``dims`` of a spec entry: the zoo's own bounds of each name, for inputs that come from examples."""
    return {"dims": {name: {"min": _BOUNDS[name][0], "max": _BOUNDS[name][1]} for name in names}}


def of_factory(factory: str, entry: Entry | None = None, **source: object) -> Entry:
    """Return a spec entry of ``kind: torch``; the factory's file is one of ``tests/conformance/models``."""
    return {"source": {"factory": factory, **source}, **(entry or signature(x="float32 batch 4"))}


def written(module: str, function: str, *arguments: object) -> Callable[[Path], None]:
    """Return a writer of ``tests/conformance/files``, imported when it is needed: most of them need torch.

    Args:
        module: Its module.
        function: Its name; it takes the directory, then ``arguments``.
        arguments: What else it takes.
    """

    def write(directory: Path) -> None:
        getattr(importlib.import_module(f"tests.conformance.files.{module}"), function)(directory, *arguments)

    return write
