"""Summarizes a graph for a comparison: operators, versions, and a digest of each tensor. The graph is not run."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.files import open_regular
from repogen.files.content import ContentError
from repogen.onnx_graph.external_data import External, cut_short, external_of, misplaced, nodes
from repogen.onnx_graph.facts import parse_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

_BLOCK = 2**20
_MAX_TENSORS = 1_000_000
_MAX_NAME = 500
"""Characters of the name of a node's output or attribute, which each tensor of the node gets."""
_OVERLAP = 2
"""How many times the bytes of the data files may be hashed; shared tensors are hashed once."""
_EXTERNAL = 1  # TensorProto.DataLocation


@dataclass(frozen=True)
class GraphSummary:
    """A graph.

    Attributes:
        opsets: Version of each operator set by domain; ``ai.onnx`` for the default domain.
        ir_version: ONNX IR version.
        operators: Number of nodes by operator, with those of subgraphs and functions; ``domain::name`` outside of
            ``ai.onnx``.
        tensors: Name -> digest of type, shape and values: initializers, and tensors in attributes of nodes.
    """

    opsets: dict[str, int]
    ir_version: int
    operators: dict[str, int]
    tensors: dict[str, str]


def summarize(path: Path) -> GraphSummary:
    """Return the summary of an ONNX file; its external data is read in blocks.

    Args:
        path: The file, which is not trusted: external data is read only from its own directory, and not more than twice
            its size in total.

    Raises:
        ContentError: It is not an ONNX file, has more than 1,000,000 tensors, or its external data is missing, leads
            out of the directory, or overlaps.
        OSError: A file can't be read.
    """
    proto = parse_model(path)
    digests = _Digests(path)
    tensors: dict[str, str] = {}
    for name, tensor in _tensors(proto):
        if len(tensors) >= _MAX_TENSORS:
            raise ContentError(f"has more than {_MAX_TENSORS:,} tensors")
        tensors[_unused(name, tensors)] = digests.digest(tensor)
    return GraphSummary(
        {_text(entry.domain) or "ai.onnx": entry.version for entry in proto.opset_import},
        proto.ir_version,
        dict(Counter(_operator(node) for node in nodes(proto))),
        tensors,
    )


class _Digests:
    """Digests of the tensors of one file; a range of external data that tensors share is hashed once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ranges: dict[tuple[str, int, int], str] = {}
        self._sizes: dict[str, int] = {}
        self._hashed = 0

    def digest(self, tensor: onnx.TensorProto) -> str:
        """Return the digest of type, shape and values."""
        content = self._external(external_of(tensor)) if tensor.data_location == _EXTERNAL else _inline(tensor)
        return hashlib.sha256(f"{tensor.data_type} {list(tensor.dims)} {content}".encode()).hexdigest()

    def _external(self, entry: External) -> str:
        key = (entry.location, entry.offset, entry.length)
        if key not in self._ranges:
            self._ranges[key] = self._hash(entry)
        return self._ranges[key]

    def _hash(self, entry: External) -> str:
        problem = misplaced(self._path, entry.location) or cut_short(self._path, entry)
        if problem:
            raise ContentError(f"has external data that {problem}: {entry.location!r}")
        file = self._path.parent / entry.location
        self._sizes[entry.location] = file.stat().st_size
        self._hashed += entry.length
        if self._hashed > _OVERLAP * sum(self._sizes.values()):
            raise ContentError("has tensors that overlap in the external data")
        digest, left = hashlib.sha256(), entry.length
        with open_regular(file) as stream:
            stream.seek(entry.offset)
            while left and (block := stream.read(min(_BLOCK, left))):
                digest.update(block)
                left -= len(block)
        return digest.hexdigest()


def _inline(tensor: onnx.TensorProto) -> str:
    """Return the digest of values in the file, the same for raw data and for typed fields."""
    from onnx import numpy_helper  # noqa: PLC0415 - imports numpy

    if tensor.HasField("raw_data"):
        return hashlib.sha256(tensor.raw_data).hexdigest()
    try:
        array = numpy_helper.to_array(tensor)
        content = b"\0".join(array.ravel().tolist()) if array.dtype.kind == "O" else array.tobytes()
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError):  # types and shapes that do not fit
        content = tensor.SerializeToString(deterministic=True)
    return hashlib.sha256(content).hexdigest()


def _tensors(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the tensors with names: initializers, and those in attributes, named by the node's first output."""
    graphs = [proto.graph]
    for node in nodes(proto):
        subject = (_text(node.output[0]) if node.output else _operator(node))[:_MAX_NAME]
        for attribute in node.attribute:
            name = f"{subject}:{_text(attribute.name)[:_MAX_NAME]}"
            if attribute.HasField("t"):
                yield name, attribute.t
            yield from ((name, tensor) for tensor in attribute.tensors)
            sparse = [*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ())]
            for entry in (*sparse, *attribute.sparse_tensors):
                yield from ((name, entry.values), (name, entry.indices))
            graphs += [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]
    for graph in graphs:
        yield from ((_text(tensor.name), tensor) for tensor in graph.initializer)
        for entry in graph.sparse_initializer:
            yield from (
                (_text(entry.values.name), entry.values),
                (f"{_text(entry.values.name)}:indices", entry.indices),
            )


def _unused(name: str, tensors: dict[str, str]) -> str:
    """Return a name that is not used yet: subgraphs can use one again."""
    if name not in tensors:
        return name
    return f"{name}#{len(tensors)}"


def _operator(node: onnx.NodeProto) -> str:
    domain, name = _text(node.domain), _text(node.op_type)
    return name if domain in {"", "ai.onnx"} else f"{domain}::{name}"


def _text(value: str | bytes) -> str:
    """Return text that protobuf returns as bytes if it is not UTF-8."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
