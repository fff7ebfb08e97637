"""A graph that exists already, as a rung: read, and converted only where the target would not load it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from repogen.artifacts.source import OnnxFile
from repogen.errors import ExportError
from repogen.export.export_source import keep_outputs

if TYPE_CHECKING:
    import torch

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Signature

_FREE_INITIALIZERS = 4  # the first IR version whose initializers need not be inputs


class OnnxAsIs:
    """The file of an ``onnx`` source."""

    name = "onnx"

    def export(self, source: SourceModel, args: tuple[torch.Tensor, ...], opset: int, directory: Path) -> ir.Model:
        """Read the graph; one of a newer opset than asked for is converted, one of an older is left as it is.

        Raises:
            ExportError: The source is no file, or onnx's version converter can't convert it.
        """
        del args, directory
        if not isinstance(source.origin, OnnxFile):
            raise ExportError("only an ONNX file can be taken as it is", code="export.exporter")
        model = ir.load(source.origin.path)
        if model.opset_imports.get("", 0) > opset:
            model = _converted(source.origin.path, model, opset)
        else:
            _follow_links(model)
        _drop_constants(model)
        return _chosen(_narrowed(model, source.signature), source.signature)


def _converted(path: Path, model: ir.Model, opset: int) -> ir.Model:
    have = model.opset_imports.get("", 0)
    _follow_links(model)
    ir.external_data.load_to_model(model)
    try:
        return ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ExportError(
            f"{path.name} is of opset {have}, the target loads up to {opset}, and onnx's version converter can't "
            f"convert it: {lines[0][:200] if lines else type(error).__name__}",
            f"export it again for opset {opset}, or build for a newer Triton (target.triton)",
            code="export.opset",
            details=str(error),
        ) from error


def _follow_links(model: ir.Model) -> None:
    """Read external data where its links lead: a hub cache keeps all files behind links, and onnx_ir refuses them."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and Path(tensor.path).is_symlink():
                value.const_value = _behind_link(tensor)


def _behind_link(tensor: ir.ExternalTensor) -> ir.ExternalTensor:
    file = Path(tensor.path).resolve()
    return ir.ExternalTensor(
        location=file.name,
        offset=tensor.offset,
        length=tensor.length,
        dtype=tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        base_dir=file.parent,
    )


def _drop_constants(model: ir.Model) -> None:
    """Take initializers out of the inputs, where IR 3 wanted them: clients do not send weights."""
    model.ir_version = max(model.ir_version, _FREE_INITIALIZERS)
    graph = model.graph
    graph.inputs[:] = [value for value in graph.inputs if value.name not in graph.initializers]


def _narrowed(model: ir.Model, signature: Signature) -> ir.Model:
    """Fix the dims that the spec fixes, and give the others the signature's names."""
    for value, spec in zip(model.graph.inputs, signature.inputs, strict=True):
        value.shape = ir.Shape(list(spec.shape))
    return model


def _chosen(model: ir.Model, signature: Signature) -> ir.Model:
    """Keep the outputs that the signature has; other names in it are new names for all of them."""
    names = [value.name for value in model.graph.outputs]
    wanted = [spec.name for spec in signature.outputs]
    return keep_outputs(model, tuple(names.index(name) for name in wanted)) if set(wanted) <= set(names) else model
