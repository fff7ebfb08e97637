"""Turns what an exporter or a pass produced into the file to publish: the spec's names, no trace of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from repogen.artifacts.tensors import DTYPES
from repogen.errors import ExportError
from repogen.onnx_graph.describe import describe
from repogen.onnx_graph.serialize import write_model

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.tensors import Signature, TensorSpec
    from repogen.targets import Target

# Source: Versioning.md of onnx: the first IR version that may carry each opset. A model of an older opset may
# bear an older IR version as long as it uses none of the newer one's fields.
_OPSET_IR = {21: 10, 23: 11, 24: 12, 25: 13}
_PROTOBUF_LIMIT = 2**31 - 2**20
_PRODUCER = "repogen"


@dataclass(frozen=True)
class Finishing:
    """How to finish a graph.

    Attributes:
        signature: Names and ranks that the graph is to have.
        target: The release that is to load it.
        external_data: Whether weights go to ``model.onnx.data`` even when they would fit.
        exporter: Who made the graph.
    """

    signature: Signature
    target: Target
    external_data: bool
    exporter: str


def finish(model: ir.Model, path: Path, how: Finishing) -> OnnxArtifact:
    """Name, clean and write ``model``; return its record.

    Args:
        model: Changed in place.
        path: ``…/model.onnx``; its directory exists.
        how: What to make of it.

    Raises:
        ExportError: The graph has another number of inputs or outputs than the signature.
    """
    _name(model, how.signature)
    _clean(model)
    _lower_ir(model, how.target)
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    external = how.external_data or size > _PROTOBUF_LIMIT
    if external:
        ir.save(model, path, external_data=f"{path.name}.data", size_threshold_bytes=1024)
    else:
        ir.external_data.load_to_model(model)  # an exporter's own files stay behind: nothing may point to them
        write_model(model, path)
    return describe(model, path, how.exporter)


def _name(model: ir.Model, signature: Signature) -> None:
    graph = model.graph
    _restore_unused(graph, signature)
    found, wanted = [v.name for v in graph.inputs], [s.name for s in signature.inputs]
    if len(found) != len(wanted):
        raise ExportError(
            f"the exported graph has inputs {', '.join(map(str, found)) or 'none'}, declared are {', '.join(wanted)}",
            code="export.inputs",
        )
    if len(graph.outputs) != len(signature.outputs):
        raise ExportError(
            f"the exported graph has {len(graph.outputs)} outputs, the model {len(signature.outputs)}",
            code="export.outputs",
        )
    _separate_outputs(graph)
    ends = [*zip(graph.inputs, signature.inputs, strict=True), *zip(graph.outputs, signature.outputs, strict=True)]
    _free_names(graph, {spec.name for _, spec in ends}, {id(value) for value, _ in ends})
    for value, spec in ends:
        value.name = spec.name
        if value.shape is None:
            value.shape = ir.Shape([f"{spec.name}_dim_{axis}" for axis in range(len(spec.shape))])
    declared = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    for value, spec in zip(graph.outputs, signature.outputs, strict=True):
        if value.shape is not None:  # an exporter's own names say that dims are equal which happened to be
            named = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
            fresh = [f"{spec.name}_dim_{axis}" for axis in range(len(named))]
            value.shape = ir.Shape(
                [d if isinstance(d, int) or d in declared else f for d, f in zip(named, fresh, strict=True)]
            )


def _restore_unused(graph: ir.Graph, signature: Signature) -> None:
    """Give a graph the inputs back that an exporter dropped because nothing reads them: clients send them."""
    found = {value.name: value for value in graph.inputs}
    if len(found) < len(signature.inputs) and set(found) <= {spec.name for spec in signature.inputs}:
        graph.inputs[:] = [found[spec.name] if spec.name in found else _input(spec) for spec in signature.inputs]


def _input(spec: TensorSpec) -> ir.Value:
    dtype = ir.DataType(DTYPES[spec.dtype].onnx)
    return ir.Value(name=spec.name, type=ir.TensorType(dtype), shape=ir.Shape(list(spec.shape)))


def _separate_outputs(graph: ir.Graph) -> None:
    """Give an output that is an input, an initializer or another output a node of its own: names must differ."""
    seen: set[int] = set()
    for index, value in enumerate(graph.outputs):
        if value.producer() is None or id(value) in seen:
            node = ir.node("Identity", [value])
            made = node.outputs[0]
            made.type, made.shape = value.type, value.shape
            graph.append(node)
            graph.outputs[index] = made
        seen.add(id(graph.outputs[index]))


def _free_names(graph: ir.Graph, names: set[str], ends: set[int]) -> None:
    """Rename inner values that bear a name meant for an input or output."""
    graphs = [graph, *graph.subgraphs()]
    inner = [out for node in graph.all_nodes() for out in node.outputs]
    inner += [value for body in graphs for value in (*body.inputs, *body.initializers.values())]
    taken = names | {value.name for value in inner if value.name}
    for value in inner:
        if id(value) not in ends and value.name in names:
            fresh = f"{value.name}__inner"
            while fresh in taken:
                fresh += "_"
            taken.add(fresh)
            value.name = fresh


def _clean(model: ir.Model) -> None:
    """Take out what exporters leave of the machine: stack traces, paths, module names, doc strings."""
    model.producer_name, model.producer_version, model.doc_string = _PRODUCER, None, None
    model.graph.name, model.graph.doc_string = "model", None
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        body.metadata_props.clear()
        for node in body.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
                value.doc_string = None
    for value in [*model.graph.inputs, *model.graph.initializers.values()]:
        value.metadata_props.clear()
        value.doc_string = None


def _lower_ir(model: ir.Model, target: Target) -> None:
    """Lower the IR version to the target's newest where the opset allows it."""
    needed = max((v for opset, v in _OPSET_IR.items() if model.opset_imports.get("", 0) >= opset), default=8)
    if model.ir_version > target.max_ir >= needed:
        model.ir_version = target.max_ir
