"""What a graph says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.tensors import DTYPES, Dim, Signature, TensorSpec
from repogen.errors import ExportError

if TYPE_CHECKING:
    from pathlib import Path

_BY_ONNX = {dtype.onnx: dtype.name for dtype in DTYPES.values()}


def describe(model: ir.Model, path: Path, exporter: str) -> OnnxArtifact:
    """Return the artifact record of ``model``, which lies at ``path``.

    Raises:
        ExportError: An input or output has a type that Triton's ONNX Runtime backend does not serve.
    """
    signature = Signature(
        tuple(_tensor(value) for value in model.graph.inputs), tuple(_tensor(value) for value in model.graph.outputs)
    )
    outputs = list(model.graph.outputs)
    return OnnxArtifact(
        path=path,
        external_data=path.with_name(path.name + ".data").exists(),
        signature=signature,
        opset=model.opset_imports.get("", 0),
        ir_version=model.ir_version,
        nodes=count_nodes(model),
        exporter=exporter,
        unused=tuple(value.name or "" for value in model.graph.inputs if not value.uses() and value not in outputs),
    )


def count_nodes(model: ir.Model) -> int:
    """Count nodes, those of subgraphs and functions included."""
    in_functions = sum(sum(1 for _ in function.all_nodes()) for function in model.functions.values())
    return sum(1 for _ in model.graph.all_nodes()) + in_functions


def _tensor(value: ir.Value) -> TensorSpec:
    name = value.name or ""
    number = 0 if value.dtype is None else int(value.dtype)
    if number not in _BY_ONNX or not isinstance(value.type, ir.TensorType):
        raise ExportError(
            f"{name!r} is {value.type}, which Triton's ONNX Runtime backend does not serve",
            "cast it in the model, for example x.float()",
            code="export.dtype",
        )
    return TensorSpec(name, _BY_ONNX[number], shape_of(value))


def shape_of(value: ir.Value) -> tuple[Dim, ...]:
    """Return the shape of a value; symbolic dims by name, ``?`` for those without one."""
    if value.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else (dim.value or "?") for dim in value.shape)
