"""Loads TorchScript archives, and rejects those that run code, or read or write files or memory of the machine.

TorchScript runs no Python code, but its operators ``aten::save`` and ``aten::from_file`` write and read any file of the
user, and packages register more of them. Others do not check the bounds of memory, such as
``inductor::_reinterpret_tensor``. The graphs are scanned after they are loaded and before they run. While an archive is
loaded, ``__setstate__`` runs, which quantized modules define, and so do the default values of parameters, which are in
no graph. So default values are scanned as text, and all code of an archive that defines ``__setstate__``. In this code,
only ``getattr`` uses a string as a name, and a name could be hidden by escapes, or by several literals, which are
joined.

The pickles of an archive can create objects of classes that are registered in C++, and their state is restored in C++.
For ``aten.OpaqueObject`` that is ``pickle.loads``: any code. Only objects of the namespaces that quantized models need
are accepted, in the pickles and in the graphs. A name in a pickle is contiguous, except for a line break in it. Source:
torch/csrc/jit/serialization/import.cpp and unpickler.cpp, torch/csrc/jit/python/opaque_obj.h,
torch/csrc/jit/frontend/ir_emitter.cpp and parser.cpp of torch 2.13.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from repogen.errors import SourceError
from repogen.files.archive import open_archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_INTERNAL_NAMESPACES = (
    "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_native", "_test", "c10d", "debug_mode_ops",
    "debugprims", "inductor", "inductor_prims", "rngprims", "static_runtime", "symm_mem",
)  # fmt: skip
"""Those of torch with operators for compilers, for several machines, and for tests."""
_INTERNAL = "|".join(_INTERNAL_NAMESPACES)
_UNCHECKED = r"_reshape_alias\w*|_nested_\w+|\w*sparse_\w+|\w*to_sparse|\w*segment_reduce\w*|\w+_backward\w*"
"""Operators that use sizes, strides or indices without checking them, and that no exporter translates."""
_OPERATOR = re.compile(
    rf"(?P<file>\w+(?:::|\.)(?:save|load_tensor|\w*(?:from|load|open|read|save|write)\w*_file\w*)\b)"
    rf"|\b(?P<internal>{_INTERNAL})(?:::|\.)|(?:::|\.)(?P<unchecked>{_UNCHECKED})\b"
)

_LEGACY = "model.json"
_RUNS_WHEN_LOADED = b"__setstate__"
_WORDS = r"save|load_tensor|\w*_file\w*|OpaqueObject"
_SPACE = r"(?:\s|\\|#[^\n]*\n)*"
_UNSAFE_NAME = re.compile(rf"\b(?:{_WORDS}|{_INTERNAL})\b|\.{_SPACE}(?:{_UNCHECKED}){_SPACE}\(".encode())
_OWN_CALL = re.compile(rf"\b__torch__(?:{_SPACE}\.{_SPACE}\w+)*{_SPACE}\(".encode())
_SIGNATURE = re.compile(rb"\bdef\b")
_NAMED_TUPLE = re.compile(rb"\bNamedTuple\b.*?(?=^class\b|\Z)", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(
    rb"#[^\n]*|(?P<quote>\"\"\"|'''|\"|')(?:\\.|(?!(?P=quote)).)*(?P=quote)|[()]",
    re.DOTALL,  # a comment, a string
)
_CLASS = re.compile(rb"torch[.\n]classes\b(?:[.\n](\w*))?")
_CLASSES = frozenset({b"quantized", b"rnn", b"sparse", b"mkldnn", b"xnnpack", b"prepacked"})
_PICKLES = ("data.pkl", "constants.pkl")
_GETATTR = re.compile(rb"\b(?:get|has)attr\b")
# as torch writes the attributes whose names are not identifiers, such as "0"
_PLAIN_GETATTR = re.compile(rb'\bgetattr\((?:\(\w+\))?[\w.\[\]]*, "[^"\\\n]*"\)')
_MAX_NESTED = 64
_MAX_CODE_BYTES = 2**26
_MAX_PICKLE_BYTES = 2**30


def unsafe_operator(name: str) -> str:
    """Return why a model may not call an operator; empty if it may.

    PyTorch does not promise that the others are safe for a program of an attacker.

    Args:
        name: ``NAMESPACE::NAME``, or text that contains ``NAMESPACE.NAME``.

    >>> unsafe_operator("aten::from_file"), unsafe_operator("torch.ops.inductor._reinterpret_tensor.default")
    ('reads or writes files', 'is not an operator of models')
    >>> unsafe_operator("aten::_reshape_alias"), unsafe_operator("aten::relu")
    ('does not check the bounds of memory', '')
    """
    match = _OPERATOR.search(name)
    if match is None:
        return ""
    if match["file"]:
        return "reads or writes files"
    return "is not an operator of models" if match["internal"] else "does not check the bounds of memory"


def load_script(path: Path) -> Any:  # noqa: ANN401 - as torch declares it
    """Load a TorchScript archive on the CPU, as ``torch.jit.load`` does.

    Raises:
        SourceError: It calls an unsafe operator, or could do so while it is loaded.
        Exception: Any that torch raises for a damaged archive.
    """
    _scan_members(path)
    unit: Any = torch._C.CompilationUnit()  # noqa: SLF001 - torch.jit.load does not return it
    read: Any = torch._C.import_ir_module  # noqa: SLF001 - the same
    loaded = read(unit, str(path), torch.device("cpu"), {}, False)  # noqa: FBT003 - without shapes
    for function in unit.get_functions():
        for node in _nodes(function.graph):
            if reason := unsafe_operator(node.kind()):
                _reject(path, f"calls {node.kind()[:80]!r}, which {reason}")
            for value in node.outputs():
                _require_known_classes(path, value.type().annotation_str.encode())
    return torch.jit._recursive.wrap_cpp_module(loaded)  # type: ignore[no-untyped-call]  # noqa: SLF001 - the same


def _scan_members(path: Path) -> None:
    """Reject an archive that could run code, or read or write files, while it is loaded."""
    with open_archive(path) as archive:
        names = [name.partition("/")[2] for name in archive.names]
        texts = [archive.read(name, _MAX_CODE_BYTES) for name in archive.names if name.lower().endswith(".py")]
        for name in archive.names:
            if name.lower().endswith(".pkl"):
                _require_known_classes(path, archive.read(name, _MAX_PICKLE_BYTES))
    reader: Any = torch._C.PyTorchFileReader(str(path))  # noqa: SLF001 - another reader might find other members
    records = reader.get_all_records()
    if _LEGACY in {name.lower() for name in (*names, *records)}:
        _reject(path, "has the format of torch 1.2 or older")
    texts += [reader.get_record(name) for name in records if name.lower().endswith(".py")]
    pickles = {*(name for name in records if name.lower().endswith(".pkl")), *filter(reader.has_record, _PICKLES)}
    for content in (*texts, *map(reader.get_record, pickles)):
        _require_known_classes(path, content)
    _scan_code(path, texts)


def _scan_code(path: Path, texts: Sequence[bytes | bytearray]) -> None:
    """Reject an archive whose code could run an unsafe operator while it is loaded."""
    if any(_RUNS_WHEN_LOADED in text for text in texts):
        for match in filter(None, map(_suspicious, texts)):
            _reject(path, f"has {_RUNS_WHEN_LOADED.decode()} and the text {match[0].decode(errors='replace')[:80]!r}")
    for text in chain.from_iterable(map(_with_defaults, texts)):
        if unsafe := _suspicious(text) or _OWN_CALL.search(text):
            _reject(path, f"has a default value with the text {unsafe[0].decode(errors='replace')[:80]!r}")


def _with_defaults(text: bytes | bytearray) -> Iterator[bytes | bytearray]:
    """Yield the parameters of functions and the fields of named tuples, whose default values run at loading."""
    for match in _SIGNATURE.finditer(text):
        depth, end = 0, len(text)
        for token in _TOKEN.finditer(text, match.end()):
            depth += {b"(": 1, b")": -1}.get(token[0], 0)
            if token[0] == b")" and depth == 0:
                end = token.end()
                break
        yield text[match.end() : end]
    for match in _NAMED_TUPLE.finditer(text):
        yield match[0]


def _suspicious(text: bytes | bytearray) -> re.Match[bytes] | None:
    """Return a name in the code of an archive that could be an unsafe operator, or a getattr that could hide one."""
    if match := _UNSAFE_NAME.search(text):
        return match
    for _ in range(_MAX_NESTED):  # from the inside: getattr(getattr(self, "0"), "1")
        text, count = _PLAIN_GETATTR.subn(b"_", text)
        if not count:
            break
    return _GETATTR.search(text)


def _require_known_classes(path: Path, content: bytes | bytearray) -> None:
    """Reject the name of a class that is registered in C++, and that a model does not need."""
    for match in _CLASS.finditer(content):
        if match[1] not in _CLASSES:
            _reject(path, f"has an object of {match[0].decode(errors='replace')[:80]!r}")


def _nodes(block: Any) -> Iterator[Any]:  # noqa: ANN401 - torch._C is untyped
    """Yield the nodes of a graph, with those of branches, loops and forks."""
    for node in block.nodes():
        yield node
        graphs = [node.g(name) for name in node.attributeNames() if node.kindOf(name) == "g"]
        for inner in (*node.blocks(), *graphs):
            yield from _nodes(inner)


def _reject(path: Path, reason: str) -> NoReturn:
    raise SourceError(
        f"{path.name} {reason}, and running it could read or write any of your files, or run code",
        "if you trust it, export it to ONNX yourself; otherwise find out where it comes from",
        code="source.archive",
        where=path.name,
    )
