"""Writes the output shapes that ONNX Runtime infers into a graph, as the server compares config.pbtxt with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from repogen.artifacts.tensors import Signature
from repogen.onnx_graph.serialize import write_model

if TYPE_CHECKING:
    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.tensors import Dim, TensorSpec

OutputShapes: TypeAlias = dict[str, tuple[int | None, ...]]
"""The shape of each output as ONNX Runtime reports it; None for a dynamic size."""


def with_output_shapes(artifact: OnnxArtifact, shapes: OutputShapes) -> OnnxArtifact:
    """Return the artifact with these output shapes; its file is rewritten if they differ from it.

    Args:
        artifact: The graph.
        shapes: Shapes by output; outputs without a shape of the same rank stay as they are.
    """
    inputs, outputs = artifact.signature.inputs, artifact.signature.outputs
    inferred = tuple(_inferred(spec, shapes.get(spec.name, ())) for spec in outputs)
    if inferred == outputs:
        return artifact
    model = ir.load(artifact.path)
    for value, spec in zip(model.graph.outputs, inferred, strict=True):
        value.shape = ir.Shape(list(spec.shape))
    rewritten = artifact.path.with_name("rewritten.onnx")
    if artifact.external_data:
        ir.save(model, rewritten)  # the weights stay in their file
    else:
        write_model(model, rewritten)
    rewritten.replace(artifact.path)
    return replace(artifact, signature=Signature(inputs, inferred))


def _inferred(spec: TensorSpec, shape: tuple[int | None, ...]) -> TensorSpec:
    if len(shape) != len(spec.shape):
        return spec
    return replace(spec, shape=tuple(_dim(spec, axis, size) for axis, size in enumerate(shape)))


def _dim(spec: TensorSpec, axis: int, size: int | None) -> Dim:
    if size is not None and size >= 0:
        return size
    declared = spec.shape[axis]
    return f"{spec.name}_dim_{axis}" if isinstance(declared, int) else declared
