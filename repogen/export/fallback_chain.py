"""The exporters to try in turn, and whether each one's graph kept what the spec declares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from repogen.artifacts.source import Eager, OnnxFile, PassThroughSource, Program, Script
from repogen.errors import ExportError
from repogen.export.attention import EagerAttention
from repogen.export.dynamo import Dynamo, specialized
from repogen.export.guards import DOUBTS
from repogen.export.onnx_passthrough import OnnxAsIs
from repogen.export.torchscript import RawScript, TorchScript
from repogen.onnx_graph.normalize import finish

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.source import Origin, SourceModel
    from repogen.artifacts.tensors import Signature
    from repogen.export.exporter import Exporter
    from repogen.onnx_graph.normalize import Finishing
    from repogen.spec.models import ExportSpec

# The newest opset that both exporters of the tested torch versions write without a conversion.
_AUTO_OPSET = 20


def exporters(origin: Origin, spec: ExportSpec) -> list[Exporter]:
    """Return the exporters to try, in order.

    Raises:
        ExportError: The spec asks for one that does not take this kind of source.
    """
    ladder = _ladder(origin, spec.allow_tracer_warnings)
    chosen = [rung for rung in ladder if spec.exporter in {"auto", rung.name.partition("-")[0]}]
    if chosen:
        return chosen
    raise ExportError(
        f"export.exporter: {spec.exporter} does not take this kind of source",
        "set export.exporter to auto",
        code="export.exporter",
    )


def _ladder(origin: Origin, allowed: tuple[str, ...]) -> list[Exporter]:
    traced = TorchScript(allowed)
    match origin:
        case PassThroughSource():
            return []
        case OnnxFile():
            return [OnnxAsIs()]
        case Script():
            return [RawScript(), TorchScript(allowed, "torchscript-traced")]
        case Program():
            return [Dynamo(), traced]
        case Eager():
            eager = [EagerAttention(Dynamo()), EagerAttention(traced)] if origin.attention else []
            return [Dynamo(), traced, *eager]


def export_with(
    exporter: Exporter, source: SourceModel, spec: ExportSpec, finishing: Finishing, directory: Path
) -> OnnxArtifact:
    """Export ``source`` to ``directory/model.onnx``, and ask the graph whether it kept every declared dim.

    Args:
        exporter: One of ``exporters``.
        source: The model.
        spec: Which opset.
        finishing: How the graph is written.
        directory: An existing empty directory.

    Raises:
        ExportError: The exporter refused, wrote another opset, or fixed a dim; the reason is in one line.
    """
    newest = finishing.target.max_opset
    auto = newest if isinstance(source.origin, OnnxFile) else min(_AUTO_OPSET, newest)
    opset = auto if spec.opset == "auto" else spec.opset
    sample = source.examples(source.example_sizes, 0)
    args = tuple(torch.from_numpy(sample[tensor.name]) for tensor in source.signature.inputs)
    graph = exporter.export(source, args, opset, directory)
    artifact = finish(graph, directory / "model.onnx", finishing)
    if spec.opset != "auto" and artifact.opset != opset:
        raise ExportError(
            f"{exporter.name} wrote opset {artifact.opset}, not {opset}",
            "set export.opset to auto, or try another exporter (export.exporter)",
            code="export.opset",
        )
    check_dims(artifact.signature, source.signature)
    return replace(artifact, doubts=tuple(graph.meta.get(DOUBTS, ())))


def check_dims(graph: Signature, declared: Signature) -> None:
    """Compare the graph's input dims with the declared ones.

    Raises:
        ExportError: A dim declared dynamic is fixed in the graph, or one declared fixed is dynamic.
    """
    for found, wanted in zip(graph.inputs, declared.inputs, strict=True):
        if found.dtype != wanted.dtype or len(found.shape) != len(wanted.shape):
            raise ExportError(
                f"input {wanted.name!r} is {found.dtype} {list(found.shape)} in the graph, "
                f"declared {wanted.dtype} {list(wanted.shape)}",
                code="export.input-type",
            )
        for axis, (have, want) in enumerate(zip(found.shape, wanted.shape, strict=True)):
            if isinstance(want, str) and isinstance(have, int):
                raise specialized(want, wanted.name, axis, str(have))
            if isinstance(want, int) and have != want:
                raise ExportError(
                    f"axis {axis} of input {wanted.name!r} is declared {want}, but is {have!r} in the graph",
                    "declare it as a dim, or fix it in the model",
                    code="export.generalized-dim",
                )
