"""Normalizes the graph of an exporter or a pass into the file to publish: the spec's names, no local metadata."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import ClearMetadataAndDocStringPass, NameFixPass, OutputFixPass, RemoveUnusedNodesPass

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.tensors import DTYPES, Dim, Signature, TensorSpec
from repogen.errors import ExportError
from repogen.onnx_graph.facts import is_unnamed
from repogen.onnx_graph.serialize import write_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.targets import Target

# The first IR version for each opset; source: Versioning.md of onnx. A model with an older opset may have an older IR
# version if it does not use newer fields.
_OPSET_IR = {21: 10, 23: 11, 24: 12, 25: 13}
_PROTOBUF_LIMIT = 2**31 - 2**20
_PRODUCER = "repogen"
_BY_ONNX = {dtype.onnx: dtype.name for dtype in DTYPES.values()}


@dataclass(frozen=True)
class NormalizeOptions:
    """How to normalize and write a graph.

    Attributes:
        signature: Names and ranks of the inputs and outputs.
        target: The release that loads the graph.
        external_data: Whether weights go to ``model.onnx.data`` even if they fit into one file.
        exporter: Name of the exporter that produced the graph.
    """

    signature: Signature
    target: Target
    external_data: bool
    exporter: str


def normalize(model: ir.Model, path: Path, options: NormalizeOptions) -> OnnxArtifact:
    """Rename, clean and write a graph; return its record.

    Args:
        model: The graph; changed in place.
        path: ``…/model.onnx``; its directory exists.
        options: How to normalize and write it.

    Raises:
        ExportError: The graph has another number of inputs or outputs than the signature, or an input or output has a
            type that Triton's ONNX Runtime backend does not serve.
    """
    _set_signature(model, options.signature)
    _clean(model)
    _lower_ir(model, options.target)
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if options.external_data or size > _PROTOBUF_LIMIT:
        ir.save(model, path, external_data=f"{path.name}.data", size_threshold_bytes=1024)
    else:
        ir.external_data.load_to_model(model)  # the exporter's own data files are not published
        write_model(model, path)
    return describe(model, path, options.exporter)


def select_outputs(model: ir.Model, indices: tuple[int, ...]) -> ir.Model:
    """Keep only some outputs of a graph, in the given order, and the nodes that they depend on."""
    outputs = list(model.graph.outputs)
    if indices != tuple(range(len(outputs))):
        model.graph.outputs[:] = [outputs[index] for index in indices]
        RemoveUnusedNodesPass()(model)
    return model


def separate_unnamed_dims(model: ir.Model) -> None:
    """Remove sizes below 0 and symbols that are not names from all shapes: they would make unequal sizes equal."""
    values = [output for body in _bodies(model) for node in body.all_nodes() for output in node.outputs]
    for value in (*values, *model.graph.inputs):
        if value.shape is not None:
            value.shape = ir.Shape([None if _is_unknown(dim) else dim for dim in value.shape])


def name_dims(model: ir.Model, signature: Signature) -> None:
    """Give the dynamic dims of the inputs the names of a signature, instead of symbols that torch generated.

    Expressions of symbols, such as ``2*s0``, stay as they are, and so does a symbol with two names in the signature.
    """
    names = dict[str | None, set[str]]()
    shapes = {spec.name: spec.shape for spec in signature.inputs}
    for value in model.graph.inputs:  # an exporter may drop some
        for dim, name in zip(value.shape or (), shapes.get(str(value.name), ()), strict=False):
            if isinstance(dim, ir.SymbolicDim) and isinstance(name, str):
                names.setdefault(dim.value, set()).add(name)
    unique = {symbol: next(iter(each)) for symbol, each in names.items() if len(each) == 1}
    values = [output for body in _bodies(model) for node in body.all_nodes() for output in node.outputs]
    for value in (*values, *model.graph.inputs):
        if value.shape is not None:
            value.shape = ir.Shape([_named(dim, unique) for dim in value.shape])


def _named(dim: int | ir.SymbolicDim, names: Mapping[str | None, str]) -> int | str | ir.SymbolicDim:
    return dim if isinstance(dim, int) else names.get(dim.value, dim)


def _is_unknown(dim: int | ir.SymbolicDim) -> bool:
    return dim < 0 if isinstance(dim, int) else is_unnamed(dim.value)


def _set_signature(model: ir.Model, signature: Signature) -> None:
    graph = model.graph
    _restore_unused_inputs(graph, signature)
    expected = [spec.name for spec in signature.inputs]
    if len(graph.inputs) != len(expected):
        actual = ", ".join(str(value.name) for value in graph.inputs) or "none"
        raise ExportError(
            f"the exported graph has inputs {actual}; expected {', '.join(expected)}", code="export.inputs"
        )
    if len(graph.outputs) != len(signature.outputs):
        raise ExportError(
            f"the exported graph has {len(graph.outputs)} outputs, the model {len(signature.outputs)}",
            code="export.outputs",
        )
    _separate_initializer_outputs(graph)
    OutputFixPass()(model)
    _cast_bfloat16_inputs(graph, signature)
    pairs = [*zip(graph.inputs, signature.inputs, strict=True), *zip(graph.outputs, signature.outputs, strict=True)]
    for value, spec in pairs:
        value.name = spec.name
        if value.shape is None:
            value.shape = ir.Shape([f"{spec.name}_dim_{axis}" for axis in range(len(spec.shape))])
    _fix_names(model)
    declared = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    for value, spec in zip(graph.outputs, signature.outputs, strict=True):
        # TorchScript gives several axes one name because they had the same size in the example.
        dims = enumerate(value.shape or ())
        value.shape = ir.Shape([_output_dim(dim, f"{spec.name}_dim_{axis}", declared) for axis, dim in dims])


def _fix_names(model: ir.Model) -> None:
    """Rename inner values that have the name of an input or output."""
    outputs = [output for body in _bodies(model) for node in body.all_nodes() for output in node.outputs]
    omitted = [value for value in outputs if not value.name and not value.uses()]
    NameFixPass()(model)
    for value in omitted:  # a name would make the node compute an optional output
        value.name = ""


def _output_dim(dim: int | ir.SymbolicDim, default: str, declared: set[str]) -> int | str:
    if isinstance(dim, int) and dim >= 0:
        return dim
    return dim.value if isinstance(dim, ir.SymbolicDim) and dim.value in declared else default


def _restore_unused_inputs(graph: ir.Graph, signature: Signature) -> None:
    """Add the inputs that an exporter dropped because no node reads them: clients send them."""
    inputs = {value.name: value for value in graph.inputs}
    if len(inputs) < len(signature.inputs) and set(inputs) <= {spec.name for spec in signature.inputs}:
        graph.inputs[:] = [inputs.get(spec.name) or _input(spec) for spec in signature.inputs]


def _input(spec: TensorSpec) -> ir.Value:
    dtype = ir.DataType(DTYPES[spec.dtype].onnx)
    return ir.Value(name=spec.name, type=ir.TensorType(dtype), shape=ir.Shape(list(spec.shape)))


def _cast_bfloat16_inputs(graph: ir.Graph, signature: Signature) -> None:
    """Cast BF16 inputs to the float32 that an exporter's graph has instead: ONNX Runtime's CPU has few BF16 kernels."""
    for index, (value, spec) in enumerate(zip(graph.inputs, signature.inputs, strict=True)):
        if spec.dtype != "bfloat16" or value.dtype != ir.DataType.FLOAT:
            continue
        replacement = ir.Value(name=spec.name, type=ir.TensorType(ir.DataType.BFLOAT16), shape=value.shape)
        node = ir.node("Cast", [replacement], {"to": int(ir.DataType.FLOAT)})
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        if value.uses():
            value.replace_all_uses_with(node.outputs[0])
            graph.insert_before(graph[0], node)
        graph.inputs[index] = replacement


def _separate_initializer_outputs(graph: ir.Graph) -> None:
    """Add an Identity node for each output that is an initializer, so that the output can be renamed."""
    for index, value in enumerate(graph.outputs):
        if value.is_initializer():
            node = ir.node("Identity", [value])
            node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
            graph.append(node)
            graph.outputs[index] = node.outputs[0]


def _clean(model: ir.Model) -> None:
    """Remove stack traces, paths, module names and doc strings, which exporters record."""
    ClearMetadataAndDocStringPass()(model)  # nodes, and the graphs that contain them
    model.producer_name, model.producer_version, model.doc_string = _PRODUCER, None, None
    model.graph.name, model.graph.doc_string = "model", None
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    values = [output for body in _bodies(model) for node in body.all_nodes() for output in node.outputs]
    values += [value for graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values())]
    for value in values:
        value.metadata_props.clear()
        value.doc_string = None


def _lower_ir(model: ir.Model, target: Target) -> None:
    """Lower the IR version to the target's newest if the opset permits it."""
    required_ir = max((v for opset, v in _OPSET_IR.items() if model.opset_imports.get("", 0) >= opset), default=8)
    if model.ir_version > target.max_ir >= required_ir:
        model.ir_version = target.max_ir


def describe(model: ir.Model, path: Path, exporter: str) -> OnnxArtifact:
    """Return the artifact record of a graph that is written to ``path``.

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
        operators=count_operators(model),
    )


def count_nodes(model: ir.Model) -> int:
    """Return the number of nodes, including those of subgraphs and functions."""
    return count_operators(model).total()


def count_operators(model: ir.Model) -> Counter[str]:
    """Return the number of nodes by operator, including those of subgraphs and functions."""
    return Counter(
        node.op_type if node.domain in {"", "ai.onnx"} else f"{node.domain}::{node.op_type}"
        for body in _bodies(model)
        for node in body.all_nodes()
    )


def _bodies(model: ir.Model) -> list[ir.Graph | ir.Function]:
    return [model.graph, *model.functions.values()]


def _tensor(value: ir.Value) -> TensorSpec:
    name = value.name or ""
    number = 0 if value.dtype is None else int(value.dtype)
    if number not in _BY_ONNX or not isinstance(value.type, ir.TensorType):
        raise ExportError(
            f"{name!r} is {value.type}, which Triton's ONNX Runtime backend does not serve",
            "cast it in the model, for example x.float()",
            code="export.dtype",
        )
    return TensorSpec(name, _BY_ONNX[number], _shape(value))


def _shape(value: ir.Value) -> tuple[Dim, ...]:
    """Return the shape of a value: sizes, and names of symbolic dims (``?`` without a name)."""
    if value.shape is None:
        return ()
    return tuple(dim if isinstance(dim, int) else (dim.value or "?") for dim in value.shape)
