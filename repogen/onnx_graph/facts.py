"""Reads the facts about an ONNX file that rules check: its signature, versions, and external data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from repogen.artifacts.tensors import DTYPES, MAX_RANK, Signature, TensorSpec
from repogen.files import MAX_GRAPH_BYTES, is_file, raise_if_exhausted
from repogen.files.content import ContentError, read_bytes, size_text
from repogen.onnx_graph.external_data import OUTSIDE_LINK, cut_short, external, leads_out, misplaced
from repogen.onnx_graph.output_shapes import infer_outputs
from repogen.onnx_graph.parsed_size import needs_more_memory
from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.tensors import Dim

_BY_ONNX = {dtype.onnx: dtype.name for dtype in DTYPES.values()}
_RETRY = "export it again, or download it again"
_MAX_EXPANDED_BYTES = 2**30
"""Of a graph of several million nodes."""
_MAX_EXPANSION = 8
"""Of decision trees, which are lists of small numbers: such a number has 1 to 3 bytes in a file and 8 in memory."""
_MAX_NAME = 10_000
"""Characters of the name of an input, an output or a dim."""


@dataclass(frozen=True)
class GraphFacts:
    """Facts about a graph.

    Attributes:
        signature: Required inputs, and outputs, with full shapes.
        spare: Optional inputs: those that have an initializer.
        opset: Version of the ``ai.onnx`` domain; 0 if it is not declared.
        ir_version: ONNX IR version.
        unknown_ranks: Outputs without a shape, whose rank could not be derived.
    """

    signature: Signature
    spare: tuple[TensorSpec, ...]
    opset: int
    ir_version: int
    unknown_ranks: frozenset[str] = frozenset()


def parse_model(path: Path) -> onnx.ModelProto:
    """Return the model in a file, without its external data.

    Raises:
        ContentError: The file is larger than 2 GiB, needs over 1 GiB of memory more than eight times its size, is not
            an ONNX model, or has an input or output that requests cannot name, or with very many dims.
        OSError: It can't be read.
    """
    content = read_bytes(path, MAX_GRAPH_BYTES)
    if other := _other_format(content):
        raise ContentError(other)
    if needs_more_memory(content, _MAX_EXPANDED_BYTES + _MAX_EXPANSION * len(content)):
        raise ContentError(_TOO_MANY_PARTS)
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise ContentError("is not an ONNX file, or is truncated") from error
    if not proto.HasField("graph") or not proto.ir_version or not proto.graph.output:
        raise ContentError("contains no graph: it is not an ONNX file, or is truncated")
    for value in (*proto.graph.input, *proto.graph.output):
        _require_usable(value)
    return proto


def _require_usable(value: onnx.ValueInfoProto) -> None:
    """Require an input or output that a config can declare, and whose shape and names may be in many messages.

    Raises:
        ContentError: It has very many dims, or a name that is very long or is not UTF-8.
    """
    dims = value.type.tensor_type.shape.dim
    if len(dims) > MAX_RANK:
        raise ContentError(f"has an input or output with {len(dims)} dims: {value.name!r:.60}")
    names = (value.name, *(dim.dim_param for dim in dims))
    if not all(isinstance(name, str) for name in names):  # protobuf returns text that is not UTF-8 as bytes
        raise ContentError(f"has an input or output with a name that is not UTF-8: {value.name!r:.60}")
    if any(len(name) > _MAX_NAME for name in names):
        raise ContentError(f"has an input, an output or a dim with a very long name: {value.name!r:.60}")


def read_graph(path: Path) -> tuple[GraphFacts | None, list[Finding]]:
    """Read a model file.

    Args:
        path: The file. The location of its external data is checked, and the data is not read.

    Returns:
        The facts, None if the file is not a graph; and findings about the file.
    """
    try:
        proto = parse_model(path)
        findings = list(_external(proto, path))
    except OSError as error:
        raise_if_exhausted(error)
        return None, [_broken_finding(f"{path.name} cannot be read: {error.strerror}", "make it a readable file")]
    except ContentError as error:
        return None, [_broken_finding(f"{path.name} {error}", hint_for(error) or _RETRY)]
    return _facts(proto), findings


_UNNAMED = frozenset({"", "?", "*", "-1", "None", "none", "unknown"})
"""What converters write for a dynamic size instead of a name; two such dims need not be equal."""
_TOO_MANY_PARTS = (
    f"has so many nodes, names and numbers that they need more than {size_text(_MAX_EXPANDED_BYTES)} of memory"
)
_OTHER_FORMATS = {
    "is a Git LFS pointer, not the file itself": "download the file: git lfs pull",
    "is a web page": "download the file again: the server returned a page, perhaps a login page",
}
_HINTS = {
    **_OTHER_FORMATS,
    _TOO_MANY_PARTS: "store the weights as raw data, as onnx.numpy_helper.from_array does, and not as single numbers",
}


def hint_for(error: ContentError) -> str:
    """Return what to do about a file that is not a model, or has too many parts; empty for another error."""
    return _HINTS.get(str(error), "")


def _other_format(content: bytes) -> str:
    """Return what a file is, if it is not a model but what a download left in place of one; empty otherwise."""
    lfs_pointer, web_page = _OTHER_FORMATS
    if not content:
        return "is empty"
    if content.startswith(b"version https://git-lfs"):
        return lfs_pointer
    return web_page if content[:1024].lstrip().lower().startswith((b"<!doctype html", b"<html")) else ""


def is_unnamed(symbol: str | None) -> bool:
    """Return whether a symbol stands for any dynamic size, and not for the same size wherever it occurs."""
    return (symbol or "") in _UNNAMED


def _broken_finding(message: str, hint: str) -> Finding:
    return Finding("RG210", "error", message, hint, security=True)


def _facts(proto: onnx.ModelProto) -> GraphFacts:
    constants = {tensor.name for tensor in proto.graph.initializer}
    constants |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    inputs = tuple(_tensor(value) for value in proto.graph.input)
    shapes = infer_outputs(proto, [_tensor(value) for value in proto.graph.output])
    return GraphFacts(
        Signature(tuple(spec for spec in inputs if spec.name not in constants), shapes.outputs),
        tuple(spec for spec in inputs if spec.name in constants),
        next((entry.version for entry in proto.opset_import if entry.domain in {"", "ai.onnx"}), 0),
        proto.ir_version,
        shapes.unknown,
    )


def _tensor(value: onnx.ValueInfoProto) -> TensorSpec:
    number = value.type.tensor_type.elem_type
    kind = value.type.WhichOneof("value") or "no type"
    if kind != "tensor_type":
        return TensorSpec(value.name, kind.removesuffix("_type").replace("_", " "), ())
    is_standard = number in onnx.TensorProto.DataType.values()
    name = _BY_ONNX.get(number) or (onnx.TensorProto.DataType.Name(number).lower() if is_standard else str(number))
    dims = enumerate(value.type.tensor_type.shape.dim)
    return TensorSpec(value.name, name, tuple(_dim(axis, dim) for axis, dim in dims))


def _dim(axis: int, dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else (dim.dim_param or f"?{axis}")


def _external(proto: onnx.ModelProto, path: Path) -> Iterator[Finding]:
    reported: set[str] = set()
    problems: dict[str, str] = {}
    for entry in external(proto):
        if entry.location not in problems:
            problems[entry.location] = misplaced(path, entry.location)
        problem = problems[entry.location]
        # ONNX Runtime follows symlinks; repogen does not load such a model
        is_link = problem == OUTSIDE_LINK and is_file(path.parent / entry.location)
        problem = f"{problem}: {entry.location!r}" if problem else cut_short(path, entry)
        if problem and entry.location not in reported:
            reported.add(entry.location)
            message = f"the external data of {path.name} {problem}"
            hint = "keep the data file next to the model, and export or copy both together"
            is_elsewhere = is_link or leads_out(entry.location)
            yield Finding("RG211", "warning" if is_link else "error", message, hint, security=is_elsewhere)
