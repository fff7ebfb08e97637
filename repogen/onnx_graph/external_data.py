"""What is in an ONNX file, however deep: nodes, tensors, and where those keep their data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

_EXTERNAL = 1  # TensorProto.DataLocation; by number, so that nothing is imported for it
# Of one element, by TensorProto.DataType; source: onnx.proto3.
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16}


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, those of subgraphs and functions included."""
    pending = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                pending.extend(graph.node)


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor that may keep its data elsewhere: initializers and attributes, in subgraphs, too."""
    graphs = [proto.graph]
    for node in nodes(proto):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            graphs += [attribute.g, *attribute.graphs]
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)


@dataclass(frozen=True)
class External:
    """Where a tensor says that its data lies.

    Attributes:
        tensor: Its name.
        location: Path from the model's directory, which may be a lie.
        offset: First byte; -1 when what stands there is no number.
        length: Number of bytes; where it does not say, what its shape needs.
    """

    tensor: str
    location: str
    offset: int
    length: int


def external(proto: onnx.ModelProto) -> Iterator[External]:
    """Yield what each tensor with external data says of it."""
    for tensor in tensors(proto):
        if tensor.data_location == _EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            try:
                offset = int(entries.get("offset", 0))
                length = int(entries.get("length", 0)) or prod(tensor.dims) * _BITS.get(tensor.data_type, 0) // 8
            except ValueError:
                offset, length = -1, 0
            yield External(tensor.name, entries.get("location", ""), offset, length)


def misplaced(path: Path, location: str) -> str:
    """Return what is wrong with the place of external data; empty when it is a file where it may be.

    Args:
        path: The model's file; data lies in its directory, or in the hub cache that the directory is of.
        location: What the model says.
    """
    pure = PurePosixPath(location)
    if not location or "\0" in location or "\\" in location or pure.is_absolute() or ".." in pure.parts:
        return "leads out of its directory"
    directory = path.absolute().parent
    file = (directory / location).resolve()
    if not any(file.is_relative_to(place) for place in (directory.resolve(), *_hub_blobs(directory))):
        return "is a link that leads out of its directory"
    if not file.is_file():
        return "is no regular file" if file.exists() else "is not there"
    return ""


def cut_short(path: Path, entry: External) -> str:
    """Return what is wrong with the extent of external data that is in its place; empty when its bytes are there."""
    size = (path.parent / entry.location).stat().st_size
    if entry.offset >= 0 and entry.length >= 0 and entry.offset + entry.length <= size:
        return ""
    place = f"tensor {entry.tensor!r} should lie at {entry.offset} for {entry.length}"
    return f"has {size} bytes in {entry.location!r}, and {place}"


def _hub_blobs(directory: Path) -> list[Path]:
    """Return where a hub cache keeps the files that ``directory``, a snapshot or below one, links to."""
    snapshots = next((place for place in directory.parents if place.name == "snapshots"), None)
    return [] if snapshots is None else [(snapshots.parent / "blobs").resolve()]
