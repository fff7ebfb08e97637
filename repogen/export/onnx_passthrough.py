"""The exporter for ONNX files: reads the graph, and converts its opset if the target does not support it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from repogen.artifacts.source import OnnxFile
from repogen.errors import ExportError
from repogen.export.interface import ExportedGraph
from repogen.onnx_graph.kernel_gaps import replace_int64_reductions
from repogen.onnx_graph.load import load_graph
from repogen.onnx_graph.normalize import select_outputs, separate_unnamed_dims

if TYPE_CHECKING:
    from repogen.export.interface import ExportRequest

_OPTIONAL_INITIALIZER_INPUTS = 4
"""First IR version whose initializers need not be listed as inputs; source: IR.md of onnx."""


def read_onnx(request: ExportRequest) -> ExportedGraph:
    """Read an ONNX file; convert it if its opset is newer than requested, and replace reductions of int64.

    Raises:
        ExportError: The source is not an ONNX file, cannot be read, or onnx's version converter cannot convert it.
    """
    origin, signature = request.source.origin, request.source.signature
    if not isinstance(origin, OnnxFile):
        raise ExportError("the source is not an ONNX file", code="export.exporter")
    model = _load(origin.path, [spec.name for spec in signature.outputs])
    _resolve_links(model)
    if model.opset_imports.get("", 0) > request.opset:
        model = _convert(origin.path, model, request.opset)
    model.ir_version = max(model.ir_version, _OPTIONAL_INITIALIZER_INPUTS)
    RemoveInitializersFromInputsPass()(model)  # clients do not send weights, which IR 3 lists as inputs
    separate_unnamed_dims(model)
    replace_int64_reductions(model)
    for value, spec in zip(model.graph.inputs, signature.inputs, strict=True):
        value.shape = ir.Shape(list(spec.shape))
    names = [value.name for value in model.graph.outputs]
    selected = [spec.name for spec in signature.outputs]
    if set(selected) <= set(names):  # other names are new names for all outputs
        select_outputs(model, tuple(names.index(name) for name in selected))
    return ExportedGraph(model)


def _load(path: Path, selected: list[str]) -> ir.Model:
    try:
        return load_graph(path, selected)
    except ir.serde.SerdeError as error:
        raise ExportError(
            f"onnx_ir cannot read {path.name}: {error.__cause__ or error}",
            "export the file again without values of rare types",
            code="source.onnx",
            details=str(error),
        ) from error


def _convert(path: Path, model: ir.Model, opset: int) -> ir.Model:
    ir.external_data.load_to_model(model)
    try:
        return ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"{path.name} has opset {model.opset_imports['']}, the target supports up to {opset}, and onnx's version "
            f"converter failed: {lines[0][:200] if lines else type(error).__name__}",
            f"export it again for opset {opset}, or build for a newer Triton (target.triton)",
            code="export.opset",
            details=str(error),
        ) from error


def _resolve_links(model: ir.Model) -> None:
    """Resolve links of external data, which onnx_ir rejects; the source has checked where they lead.

    A hub cache consists of symlinks, and package managers and caches store one file under several names (hard links).
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and _is_link(Path(tensor.path)):
                value.const_value = _resolve(tensor)


def _is_link(path: Path) -> bool:
    return path.is_symlink() or path.stat().st_nlink > 1


def _resolve(tensor: ir.ExternalTensor) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location=str(Path(tensor.path).resolve()),
        offset=tensor.offset,
        length=tensor.length,
        dtype=tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        base_dir="",  # onnx_ir then opens the location as it is
    )
