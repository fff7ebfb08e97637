"""An ONNX file as the rules see it: what it takes and answers, and whether all of it is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.onnx_graph.external_data import cut_short, external, misplaced
from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.tensors import Dim

_BY_ONNX = {dtype.onnx: dtype.name for dtype in DTYPES.values()}
_AGAIN = "export it again, or download it again"


@dataclass(frozen=True)
class GraphFacts:
    """What rules ask of a graph.

    Attributes:
        signature: What it must be given and answers, full shapes.
        spare: What it may be given beyond that: its initializers among the inputs.
        opset: Of the standard's domain; 0 when it names none.
        ir_version: IR version.
    """

    signature: Signature
    spare: tuple[TensorSpec, ...]
    opset: int
    ir_version: int


def read_graph(path: Path) -> tuple[GraphFacts | None, list[Finding]]:
    """Read a model file.

    Args:
        path: It; its external data is looked at, not read.

    Returns:
        What is known of it, None if it is no graph; and what is wrong with the file itself.
    """
    proto = onnx.ModelProto()
    try:
        content = path.read_bytes()
        proto.ParseFromString(content)
    except OSError as error:
        return None, [_broken(f"{path.name} cannot be read: {error.strerror}", "make it a readable file")]
    except DecodeError:
        what = (
            "is a git-LFS pointer" if content.startswith(b"version https://git-lfs") else "is no ONNX file, or is cut"
        )
        return None, [_broken(f"{path.name} {what}", "fetch it: git lfs pull" if "git" in what else _AGAIN)]
    if not content:
        return None, [_broken(f"{path.name} is empty", _AGAIN)]
    if not proto.HasField("graph") or not proto.ir_version or not proto.graph.output:
        return None, [_broken(f"{path.name} holds no graph: it is no ONNX file, or is cut short", _AGAIN)]
    return _facts(proto), list(_external(proto, path))


def _broken(message: str, hint: str) -> Finding:
    return Finding("RG210", "error", message, hint)


def _facts(proto: onnx.ModelProto) -> GraphFacts:
    constants = {tensor.name for tensor in proto.graph.initializer}
    constants |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    inputs = tuple(_tensor(value) for value in proto.graph.input)
    return GraphFacts(
        Signature(
            tuple(spec for spec in inputs if spec.name not in constants),
            tuple(_tensor(value) for value in proto.graph.output),
        ),
        tuple(spec for spec in inputs if spec.name in constants),
        next((entry.version for entry in proto.opset_import if entry.domain in {"", "ai.onnx"}), 0),
        proto.ir_version,
    )


def _tensor(value: onnx.ValueInfoProto) -> TensorSpec:
    number = value.type.tensor_type.elem_type
    kind = value.type.WhichOneof("value") or "no type"
    if kind != "tensor_type":
        return TensorSpec(value.name, kind.removesuffix("_type").replace("_", " "), ())
    known = number in onnx.TensorProto.DataType.values()
    name = _BY_ONNX.get(number) or (onnx.TensorProto.DataType.Name(number).lower() if known else str(number))
    dims = enumerate(value.type.tensor_type.shape.dim)
    return TensorSpec(value.name, name, tuple(_dim(axis, dim) for axis, dim in dims))


def _dim(axis: int, dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else (dim.dim_param or f"?{axis}")


def _external(proto: onnx.ModelProto, path: Path) -> Iterator[Finding]:
    told: set[str] = set()
    for entry in external(proto):
        what = misplaced(path, entry.location)
        if what.startswith("is a link") and (path.parent / entry.location).is_file():
            continue  # ONNX Runtime follows it; that links leave the repository is told of every one
        what = f"{what}: {entry.location!r}" if what else cut_short(path, entry)
        if what and entry.location not in told:
            told.add(entry.location)
            hint = "keep the data file beside the model, and export or copy both together"
            yield Finding("RG211", "error", f"the external data of {path.name} {what}", hint)
