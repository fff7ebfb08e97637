"""Reads an ONNX file as a stranger's: nothing else is opened, run or believed before it was looked through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError, first_line
from repogen.onnx_graph.external_data import cut_short, external, misplaced, nodes
from repogen.source.common.graph_inputs import GraphInput, Limits

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from repogen.source.common.graph_inputs import GraphDim

_AGAIN = "export it again, or download it again"
_BY_ONNX = {dtype.onnx: dtype.name for dtype in DTYPES.values() if dtype.name != "string"}
# Of ONNX Runtime's own build; the standard's under both of its names.
_DOMAINS = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"}
    | {"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}
)
_KINDS = {
    "sequence_type": ("a sequence", "return tensors instead: skl2onnx takes options={'zipmap': False}"),
    "map_type": ("a map", "return tensors instead: skl2onnx takes options={'zipmap': False}"),
    "optional_type": ("an optional value", "make it a tensor that is always there"),
    "sparse_tensor_type": ("a sparse tensor", "make it a dense one"),
}
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
_CAST = "export the model in float32, or give the graph Cast nodes there"


def read_onnx(path: Path) -> onnx.ModelProto:
    """Read a graph without its external data, and hold it against the standard.

    Args:
        path: The file.

    Raises:
        SourceError: It is empty, cut short, no ONNX, or breaks the standard.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _broken(path, f"cannot be read: {error.strerror}") from error
    if not content:
        raise _broken(path, "is empty")
    if content.startswith(b"version https://git-lfs"):
        raise _broken(path, "is a git-LFS pointer, not the file that it stands for", "fetch it: git lfs pull")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise _broken(path, "is no ONNX file, or is cut short", details=str(error)) from error
    if not proto.HasField("graph") or not proto.ir_version or not proto.graph.output:
        raise _broken(path, "holds no graph: it is no ONNX file, or is cut short")
    return proto


def check_standard(proto: onnx.ModelProto, path: Path) -> None:
    """Run ``onnx.checker``; a graph with external data, which it would look for elsewhere, is checked when published.

    Raises:
        SourceError: The graph breaks the standard.
    """
    if any(external(proto)):
        return
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: 2 GB and more
        raise _broken(
            path, f"breaks the ONNX standard: {first_line(error, path.parent)}", details=str(error)
        ) from error


def check_operators(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse operators of domains that ONNX Runtime does not have.

    Raises:
        SourceError: There is one; it is named.
    """
    own = {(function.domain, function.name) for function in proto.functions}
    for node in nodes(proto):
        if node.domain not in _DOMAINS and (node.domain, node.op_type) not in own:
            raise SourceError(
                f"{path.name} uses operator {node.op_type} of domain {node.domain!r}, which ONNX Runtime does not have",
                "export the model without it, or with its definition as a function of the graph",
                code="source.onnx",
                where=path.name,
            )


def graph_inputs(proto: onnx.ModelProto) -> tuple[GraphInput, ...]:
    """Return the graph's inputs; those that have an initializer are constants.

    Raises:
        SourceError: One is of a type that Triton's ONNX Runtime backend does not take.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    constants |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    return tuple(_graph_input(value) for value in proto.graph.input if value.name not in constants)


def check_outputs(proto: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Refuse outputs of a type that Triton's ONNX Runtime backend does not serve.

    Args:
        proto: The model.
        chosen: Names of the outputs to keep; all when it names another, since then it renames them.

    Raises:
        SourceError: There is one; it is named.
    """
    names = {value.name for value in proto.graph.output}
    others = names - set(chosen)
    kept = set(chosen) if chosen and set(chosen) <= names else names
    for value in proto.graph.output:
        if value.name in kept:
            leave = f"; or leave it out: outputs: [{', '.join(sorted(names - {value.name}))}]" if others else ""
            _dtype(value, "output", leave if len(names) > 1 else "")


def _graph_input(value: onnx.ValueInfoProto) -> GraphInput:
    dtype = _dtype(value, "input", "")
    if not value.type.tensor_type.HasField("shape"):
        raise SourceError(
            f"input {value.name!r} has no shape in the file, not even a number of axes",
            "export the model again with the shapes of its inputs",
            code="source.onnx-type",
        )
    dims = value.type.tensor_type.shape.dim
    return GraphInput(value.name, dtype, tuple(_dim(value.name, axis, dim) for axis, dim in enumerate(dims)))


def _dim(name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> GraphDim:
    if dim.dim_value > 0:
        return int(dim.dim_value)
    # Without a name it is a dim of its own; on axis 0 the batch, which all inputs share.
    return Limits(dim.dim_param or ("?" if axis == 0 else f"?{name}:{axis}"))


def _dtype(value: onnx.ValueInfoProto, side: str, leave: str) -> str:
    kind = value.type.WhichOneof("value") or ""
    if kind in _KINDS:
        what, remedy = _KINDS[kind]
        raise SourceError(
            f"{side} {value.name!r} is {what}, which Triton's ONNX Runtime backend does not serve",
            remedy + leave,
            code="source.onnx-type",
        )
    number = value.type.tensor_type.elem_type
    if number in _BY_ONNX:
        return _BY_ONNX[number]
    known = number in onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(number).lower() if known and number else "of no type"
    remedy = "keep strings outside of the model: look them up before" if name == "string" else _CAST
    why = "no parity can be measured on strings" if name == "string" else "Triton's ONNX Runtime backend refuses it"
    raise SourceError(f"{side} {value.name!r} is {name}: {why}", remedy + leave, code="source.onnx-type")


def random_nodes(proto: onnx.ModelProto) -> list[str]:
    """Return the nodes that may draw random numbers, as ``Operator 'name'``."""
    return [
        f"{node.op_type} {node.name!r}" if node.name else node.op_type
        for node in nodes(proto)
        if node.op_type in _RANDOM
    ]


def external_files(proto: onnx.ModelProto, path: Path) -> tuple[Path, ...]:
    """Return the files that hold a graph's external data, each in its directory or in the same hub cache.

    Args:
        proto: As ``read_onnx`` returned it.
        path: Its file.

    Raises:
        SourceError: A location leads elsewhere, is no regular file, or is too short for what should be in it.
    """
    found: dict[str, Path] = {}
    for entry in external(proto):
        if what := misplaced(path, entry.location):
            raise SourceError(
                f"the external data of {path.name} (tensor {entry.tensor!r}) {what}: {entry.location!r}",
                "keep the data file beside the .onnx file, and save it so: onnx.save(model, path, "
                "save_as_external_data=True, location='model.onnx.data')",
                code="source.onnx-external-data",
                where=path.name,
            )
        if what := cut_short(path, entry):
            raise SourceError(
                f"the external data of {path.name} {what}",
                "the two files are not from one export, or one is cut short: export or download both again",
                code="source.onnx-external-data",
                where=path.name,
            )
        found.setdefault(entry.location, (path.absolute().parent / entry.location).resolve())
    return tuple(found.values())


def _broken(path: Path, what: str, hint: str = _AGAIN, details: str = "") -> SourceError:
    return SourceError(f"{path.name} {what}", hint, code="source.onnx", where=path.name, details=details)
