"""Validates an untrusted ONNX file before anything else reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from repogen.artifacts.tensors import DTYPES
from repogen.errors import SourceError, first_line
from repogen.files.content import ContentError
from repogen.files.paths import real_path
from repogen.onnx_graph.external_data import cut_short, external, misplaced, nodes
from repogen.onnx_graph.facts import hint_for, parse_model
from repogen.source.common.dim_names import dim_symbol
from repogen.source.common.graph_inputs import GraphInput, Limits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from repogen.onnx_graph.external_data import External
    from repogen.source.common.graph_inputs import GraphDim

_EXPORT_AGAIN = "export it again, or download it again"
_DTYPE_NAMES = {dtype.onnx: dtype.name for dtype in DTYPES.values() if dtype.name not in {"string", "bfloat16"}}
# Domains of ONNX Runtime's release builds; the standard domain has two names.
_DOMAINS = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"}
    | {"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}
)
_OTHER_TYPES = {
    "sequence_type": ("a sequence", "return tensors instead; in skl2onnx, pass options={'zipmap': False}"),
    "map_type": ("a map", "return tensors instead; in skl2onnx, pass options={'zipmap': False}"),
    "optional_type": ("an optional value", "make it a tensor that is always present"),
    "sparse_tensor_type": ("a sparse tensor", "make it a dense tensor"),
}
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
_CAST = "export the model in float32, or add Cast nodes to the graph"


def read_onnx(path: Path) -> onnx.ModelProto:
    """Read a graph without its external data.

    Raises:
        SourceError: The file is empty, truncated, larger than 2 GiB, or not an ONNX file.
    """
    try:
        return parse_model(path)
    except OSError as error:
        raise _broken_error(path, f"cannot be read: {error.strerror}") from error
    except ContentError as error:
        hint = hint_for(error) or _EXPORT_AGAIN
        raise _broken_error(path, str(error), hint, details=str(error.__cause__ or "")) from error


def check_standard(proto: onnx.ModelProto, path: Path) -> None:
    """Run ``onnx.checker``, except on a graph with external data, which it would not find; that is checked later.

    Raises:
        SourceError: The graph violates the standard.
    """
    if any(external(proto)):
        return
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: 2 GB and more
        raise _broken_error(
            path, f"violates the ONNX standard: {first_line(error, path.parent)}", details=str(error)
        ) from error


def check_operators(proto: onnx.ModelProto, path: Path) -> None:
    """Reject operators of domains that ONNX Runtime does not support.

    Raises:
        SourceError: The graph has such an operator, and no function that defines it.
    """
    functions = {(function.domain, function.name) for function in proto.functions}
    for node in nodes(proto):
        if node.domain not in _DOMAINS and (node.domain, node.op_type) not in functions:
            raise SourceError(
                f"{path.name} uses operator {node.op_type} of domain {node.domain!r}, unsupported by ONNX Runtime",
                "export the model without it, or include its definition as a function of the model",
                code="source.onnx",
                where=path.name,
            )


def graph_inputs(proto: onnx.ModelProto) -> tuple[GraphInput, ...]:
    """Return the graph's inputs, except those with an initializer, which are constants.

    Raises:
        SourceError: An input has a type that Triton's ONNX Runtime backend does not accept.
    """
    constants = {tensor.name for tensor in proto.graph.initializer}
    constants |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
    return tuple(_graph_input(value) for value in proto.graph.input if value.name not in constants)


def check_outputs(proto: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Reject outputs of a type that Triton's ONNX Runtime backend does not serve.

    ``chosen`` are the names in the spec: some of the file's, or new names for all of them.

    Raises:
        SourceError: A served output has such a type.
    """
    names = {value.name for value in proto.graph.output}
    served = set(chosen) if chosen and set(chosen) <= names else names
    for value in proto.graph.output:
        if value.name in served:
            others = ", ".join(sorted(names - {value.name}))
            _dtype(value, "output", f"; or leave it out: outputs: [{others}]" if others else "")


def _graph_input(value: onnx.ValueInfoProto) -> GraphInput:
    dtype = _dtype(value, "input", "")
    if not value.type.tensor_type.HasField("shape"):
        raise SourceError(
            f"input {value.name!r} has no shape in the file, not even a rank",
            "export the model again with the shapes of its inputs",
            code="source.onnx-type",
        )
    dims = value.type.tensor_type.shape.dim
    return GraphInput(value.name, dtype, tuple(_dim(value.name, axis, dim) for axis, dim in enumerate(dims)))


def _dim(name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> GraphDim:
    if dim.dim_value > 0:
        return int(dim.dim_value)
    if dim.HasField("dim_value") and dim.dim_value == 0:
        raise SourceError(
            f"axis {axis} of input {name!r} has size 0 in the file, so that input would always be empty",
            "export the model again with that axis dynamic: a dim_param, not a dim_value of 0",
            code="source.onnx-type",
        )
    return Limits(dim_symbol(name, axis, dim.dim_param))


def _dtype(value: onnx.ValueInfoProto, side: str, alternative: str) -> str:
    kind = value.type.WhichOneof("value") or ""
    if kind in _OTHER_TYPES:
        description, hint = _OTHER_TYPES[kind]
        raise SourceError(
            f"{side} {value.name!r} is {description}, which Triton's ONNX Runtime backend does not serve",
            hint + alternative,
            code="source.onnx-type",
        )
    number = value.type.tensor_type.elem_type
    if number in _DTYPE_NAMES:
        return _DTYPE_NAMES[number]
    is_dtype = number in onnx.TensorProto.DataType.values() and number
    name = onnx.TensorProto.DataType.Name(number).lower() if is_dtype else "of undefined type"
    hint, reason = _CAST, "Triton's ONNX Runtime backend does not support it"
    if name == "string":
        hint, reason = "convert strings to numbers before the model", "parity of strings cannot be measured"
    raise SourceError(f"{side} {value.name!r} is {name}: {reason}", hint + alternative, code="source.onnx-type")


def random_nodes(proto: onnx.ModelProto) -> list[str]:
    """Return the nodes that can generate random numbers, as ``Operator 'name'``."""
    return [
        f"{node.op_type} {node.name!r}" if node.name else node.op_type
        for node in nodes(proto)
        if node.op_type in _RANDOM
    ]


def external_files(proto: onnx.ModelProto, path: Path) -> tuple[Path, ...]:
    """Return the files with a graph's external data, which are in its directory or in the same Hugging Face cache.

    Raises:
        SourceError: A location is outside the directory, is not a regular file, or is shorter than its tensors.
    """
    files: dict[str, Path] = {}
    for entry in _external(proto, path):
        if problem := "" if entry.location in files else misplaced(path, entry.location):
            raise SourceError(
                f"the external data of {path.name} (tensor {entry.tensor!r}) {problem}: {entry.location!r}",
                "keep the data file next to the .onnx file; to save it that way: onnx.save(model, path, "
                "save_as_external_data=True, location='model.onnx.data')",
                code="source.onnx-external-data",
                where=path.name,
            )
        if problem := cut_short(path, entry):
            raise SourceError(
                f"the external data of {path.name} {problem}",
                "the files are from different exports, or one is truncated: export or download both again",
                code="source.onnx-external-data",
                where=path.name,
            )
        files.setdefault(entry.location, real_path(path.absolute().parent / entry.location))
    return tuple(files.values())


def _external(proto: onnx.ModelProto, path: Path) -> Iterator[External]:
    try:
        yield from external(proto)
    except ContentError as error:
        raise _broken_error(path, str(error)) from error


def _broken_error(path: Path, problem: str, hint: str = _EXPORT_AGAIN, details: str = "") -> SourceError:
    return SourceError(f"{path.name} {problem}", hint, code="source.onnx", where=path.name, details=details)
