"""Reads nodes, tensors and external data locations of an ONNX file, including those of subgraphs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from repogen.files import exists, is_file, is_inside
from repogen.files.content import ContentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx

OUTSIDE_LINK = "is a symlink that leads out of its directory"
"""Problem of a location that is a symlink to a file in another directory."""

_MEMORY = "*/_ORT_MEM_ADDR_/*"
"""ONNX Runtime reads the data of a tensor with this location at an address in memory, which is the offset.

Source: kTensorProtoMemoryAddressTag in onnxruntime/core/framework/tensorprotoutils.h.
"""
MAX_LOCATIONS = 10_000
"""Files with external data of one graph; some exporters write one for each tensor."""
_MAX_BYTES = 2**63 - 1
_MAX_DIGITS = 19
_EXTERNAL = 1  # TensorProto.DataLocation; the number avoids an import of onnx
# Bits of one element by TensorProto.DataType; source: onnx.proto3.
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16}


def nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, including those of subgraphs and functions."""
    queue = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    for attribute in _defaults(proto):
        queue += _nodes_of(attribute)
    while queue:
        node = queue.pop()
        yield node
        for attribute in node.attribute:
            queue += _nodes_of(attribute)


def _defaults(proto: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    """Yield the default values of the attributes of functions."""
    for function in proto.functions:
        yield from function.attribute_proto


def _nodes_of(attribute: onnx.AttributeProto) -> Iterator[onnx.NodeProto]:
    for graph in (attribute.g, *attribute.graphs):
        yield from graph.node


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor that can have external data: initializers and attributes, including those of subgraphs."""
    graphs = [proto.graph]
    attributes = (attribute for node in nodes(proto) for attribute in node.attribute)
    for attribute in chain(_defaults(proto), attributes):
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
    """The declared location of a tensor's data.

    Attributes:
        tensor: Name of the tensor.
        location: Path relative to the model's directory; not validated. Several declared ones are joined by NUL, which
            is in no path: it depends on the reader which of them it uses.
        offset: First byte; -1 if the declared offset or length is not a 64-bit number.
        length: Number of bytes, at most 2**63 - 1; computed from the shape if it is not declared.
    """

    tensor: str
    location: str
    offset: int
    length: int


def external(proto: onnx.ModelProto) -> Iterator[External]:
    """Yield the declared location of each tensor with external data.

    Raises:
        ContentError: There are very many locations, each of which has to be looked up.
    """
    locations: set[str] = set()
    for tensor in tensors(proto):
        if tensor.data_location == _EXTERNAL:
            entry = external_of(tensor)
            locations.add(entry.location)
            if len(locations) > MAX_LOCATIONS:
                raise ContentError(f"has external data in more than {MAX_LOCATIONS} files")
            yield entry


def external_of(tensor: onnx.TensorProto) -> External:
    """Return the declared location of a tensor's external data."""
    # protobuf returns text that is not UTF-8 as bytes
    entries = {os.fsdecode(entry.key): os.fsdecode(entry.value) for entry in tensor.external_data}
    offset, length = (_number(entries.get(key, "0")) for key in ("offset", "length"))
    if offset < 0 or length < 0:
        offset, length = -1, 0
    locations = dict.fromkeys(os.fsdecode(entry.value) for entry in tensor.external_data if entry.key == "location")
    return External(tensor.name, "\0".join(locations), offset, length or _stored_bytes(tensor))


def _number(text: str) -> int:
    """Return a declared number of bytes; -1 for text that is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else -1


def _stored_bytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor's data by its shape, at most 2**63 - 1; 0 for a negative dim."""
    bits = _BITS.get(tensor.data_type, 0)
    for dim in tensor.dims:
        bits *= max(dim, 0)
        if not bits or bits > 8 * _MAX_BYTES:
            break
    return min(bits // 8, _MAX_BYTES)


def misplaced(path: Path, location: str) -> str:
    """Return what is wrong with the location of external data; empty if it is valid.

    Args:
        path: The model file; its data is in the same directory, or in the hub cache that contains the directory.
        location: The declared location.
    """
    if leads_out(location):
        return "leads out of its directory"
    file = path.absolute().parent / location
    if not os.path.lexists(file):
        return "does not exist"
    if not is_inside(file, path.absolute().parent):
        return OUTSIDE_LINK
    if not is_file(file):
        return "is not a regular file" if exists(file) else "does not exist"
    return ""


def leads_out(location: str) -> bool:
    """Return whether the location of external data is not a relative path in the directory of its graph.

    >>> leads_out("model.onnx.data"), leads_out("../model.onnx.data"), leads_out("/etc/passwd"), leads_out("")
    (False, True, True, True)
    """
    pure = PurePosixPath(location)
    is_special = not location or "\0" in location or "\\" in location or location.startswith(_MEMORY)
    return is_special or pure.is_absolute() or ".." in pure.parts


def cut_short(path: Path, entry: External) -> str:
    """Return what is wrong with the size of an external data file; empty if it contains the tensor."""
    size = (path.parent / entry.location).stat().st_size
    if entry.offset >= 0 and entry.length >= 0 and entry.offset + entry.length <= size:
        return ""
    extent = f"{entry.length} bytes at offset {entry.offset}"
    return f"has {size} bytes in {entry.location!r}, but tensor {entry.tensor!r} needs {extent}"
