"""Reads an ONNX file into onnx_ir, which has no maps, such as those of scikit-learn's classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def load_graph(path: Path, selected: Collection[str]) -> ir.Model:
    """Read a file without the outputs that are not selected and have no tensor type, which onnx_ir does not read.

    Args:
        path: The file.
        selected: The file's names of the outputs that are used.

    Raises:
        ir.serde.SerdeError: onnx_ir cannot read another part of the file.
    """
    proto = onnx.load_model(path, load_external_data=False)
    outputs = [value for value in proto.graph.output if value.name in selected or _is_readable(value.type)]
    is_complete = len(outputs) == len(proto.graph.output)
    if not is_complete:
        inner = [value for value in proto.graph.value_info if _is_readable(value.type)]
        for field, values in ((proto.graph.output, outputs), (proto.graph.value_info, inner)):
            del field[:]
            field.extend(values)
    model = ir.from_proto(proto)
    ir.external_data.set_base_dir(model.graph, path.parent)
    if not is_complete:
        RemoveUnusedNodesPass()(model)
    return model


def _is_readable(kind: onnx.TypeProto) -> bool:
    while kind.WhichOneof("value") in {"sequence_type", "optional_type"}:
        kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind.optional_type.elem_type
    return not kind.HasField("map_type")
