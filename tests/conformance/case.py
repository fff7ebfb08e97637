"""A case of the conformance suite: its files, its spec entry, and the correct verdict."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Entry = dict[str, Any]

# Default bounds of dims, by name.
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
        name: Name of the case, of its model, and of the directory with its own files.
        entry: The spec entry; its paths are relative to the project's directory.
        expected: ``batch`` (published, max_batch_size > 0), ``single`` (published with 0), or ``rejected:CODE``;
            equally correct codes are separated by ``|``.
        why: The reason for the verdict, in one line.
        files: Writes the case's own files into a directory.
        twin: A spec entry with inputs for the plain script, where ``entry`` does not need any.
    """

    name: str
    entry: Entry
    expected: str
    why: str
    files: Callable[[Path], None] | None = None
    twin: Entry = field(default_factory=dict)

    @property
    def codes(self) -> tuple[str, ...]:
        """The correct error codes; empty when the model must be published."""
        kind, _, codes = self.expected.partition(":")
        return tuple(codes.split("|")) if kind == "rejected" else ()

    def is_correct(self, verdict: str) -> bool:
        """Whether a verdict of repogen is correct, including its error code."""
        kind, _, code = verdict.partition(":")
        return kind == self.expected.partition(":")[0] and (not self.codes or code in self.codes)

    def is_correct_without_code(self, verdict: str) -> bool:
        """Whether the plain script's verdict is correct; it has no error codes to compare."""
        return verdict == self.expected.partition(":")[0]


def signature(bounds: dict[str, tuple[int, int]] | None = None, /, **inputs: str) -> Entry:
    """Return ``inputs`` and ``dims`` of a spec entry.

    Args:
        bounds: Lowest and highest size of dims that differ from the defaults.
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
    limits = {**_BOUNDS, **(bounds or {})}
    dims = {name: {"min": limits[name][0], "max": limits[name][1]} for name in sorted(names)}
    return {"inputs": declared, **({"dims": dims} if dims else {})}


def ranges(*names: str) -> Entry:
    """Return ``dims`` of a spec entry: the default bounds of each name, for inputs that come from examples."""
    return {"dims": {name: {"min": _BOUNDS[name][0], "max": _BOUNDS[name][1]} for name in names}}


def of_factory(factory: str, entry: Entry | None = None, **source: object) -> Entry:
    """Return a spec entry of ``kind: torch``; the factory is in one of the files in ``tests/conformance/models``."""
    return {"source": {"factory": factory, **source}, **(entry or signature(x="float32 batch 4"))}


def written(module: str, function: str, *arguments: object) -> Callable[[Path], None]:
    """Return a writer in ``tests/conformance/files``, which is imported when it is called: most need torch.

    Args:
        module: Its module.
        function: Its name; its parameters are the directory and ``arguments``.
        arguments: Further arguments.
    """

    def write(directory: Path) -> None:
        getattr(importlib.import_module(f"tests.conformance.files.{module}"), function)(directory, *arguments)

    return write
