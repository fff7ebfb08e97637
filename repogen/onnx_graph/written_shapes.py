"""Writes the output shapes that ONNX Runtime infers into a graph, as the server compares config.pbtxt with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from repogen.artifacts.tensors import Signature
from repogen.onnx_graph.serialize import write_model

if TYPE_CHECKING:
    from collections.abc import Collection

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
    return _rewrite(artifact, ir.load(artifact.path), Signature(inputs, inferred))


def without_sizes(artifact: OnnxArtifact, axes: Collection[tuple[str, int]]) -> OnnxArtifact:
    """Return the artifact with these axes of outputs as dynamic; its file is rewritten.

    The shapes of inner values are removed: ONNX Runtime infers the sizes of outputs from them, and an exporter that
    declares wrong sizes of outputs also declares wrong sizes of inner values.

    Args:
        artifact: The graph.
        axes: Names of outputs, with an axis of each.
    """
    outputs = tuple(
        replace(
            spec,
            shape=tuple(
                f"{spec.name}_dim_{axis}" if (spec.name, axis) in axes else dim for axis, dim in enumerate(spec.shape)
            ),
        )
        for spec in artifact.signature.outputs
    )
    model = ir.load(artifact.path)
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                value.shape = None
    return _rewrite(artifact, model, Signature(artifact.signature.inputs, outputs))


def _rewrite(artifact: OnnxArtifact, model: ir.Model, signature: Signature) -> OnnxArtifact:
    """Write a graph with the output shapes of a signature in place of the artifact's."""
    for value, spec in zip(model.graph.outputs, signature.outputs, strict=True):
        value.shape = ir.Shape(list(spec.shape))
    rewritten = artifact.path.with_name("rewritten.onnx")
    if artifact.external_data:
        ir.save(model, rewritten)  # the weights stay in their file
    else:
        write_model(model, rewritten)
    rewritten.replace(artifact.path)
    return replace(artifact, signature=signature)


def _inferred(spec: TensorSpec, shape: tuple[int | None, ...]) -> TensorSpec:
    if len(shape) != len(spec.shape):
        return spec
    return replace(spec, shape=tuple(_dim(spec, axis, size) for axis, size in enumerate(shape)))


def _dim(spec: TensorSpec, axis: int, size: int | None) -> Dim:
    if size is not None and size >= 0:
        return size
    declared = spec.shape[axis]
    return f"{spec.name}_dim_{axis}" if isinstance(declared, int) else declared
