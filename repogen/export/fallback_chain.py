"""The fallback chain of exporters, and the check that a graph matches the declared signature."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch

from repogen.artifacts.source import Eager, OnnxFile
from repogen.errors import ExportError
from repogen.export.fake_quantize import plain_fake_quantize
from repogen.export.interface import Exporter, ExportRequest, specialized
from repogen.export.python_code import exportable_python
from repogen.onnx_graph.centering import center_all_values, center_raw_values
from repogen.onnx_graph.kernel_gaps import fill_kernel_gaps
from repogen.onnx_graph.normalize import normalize
from repogen.plugins import load_instance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.source import Origin, SourceModel
    from repogen.artifacts.tensors import Signature, Sizes
    from repogen.onnx_graph.normalize import NormalizeOptions
    from repogen.spec.models import ExportSpec

_EXPORTER_ERRORS = frozenset({"export.no-translation", "export.dynamo", "export.torchscript"})
_COMPLEX = re.compile("complex|view_as_real|fft|polar", re.IGNORECASE)
"""In errors of exporters about complex numbers; others may concern other parts of a model that computes with them."""
_AUTO_OPSET = 20
"""Newest opset that every exporter writes without a conversion, in all tested versions of torch."""


def fallback_chain(origin: Origin, spec: ExportSpec) -> list[Exporter]:
    """Return the registered exporters to try for a source, in order.

    Raises:
        ExportError: The exporter in the spec does not support this kind of source.
        SpecError: A registered exporter cannot be imported.
    """
    exporters = [
        load_instance("repogen.exporters", name, Exporter)  # type: ignore[type-abstract] # a Protocol
        for name in spec.exporters
    ]
    accepting = [exporter for exporter in exporters if exporter.accepts(origin)]
    if accepting:
        return sorted(accepting, key=lambda exporter: (exporter.priority, exporter.name))
    subject = "no registered exporter supports" if spec.exporter == "auto" else f"{spec.exporter} does not support"
    raise ExportError(
        f"{subject} this kind of source",
        "" if spec.exporter == "auto" else "set export.exporter to auto",
        code="export.exporter",
    )


def export_with(
    exporter: Exporter,
    source: SourceModel,
    spec: ExportSpec,
    options: NormalizeOptions,
    directory: Path,
    sizes: Sizes | None = None,
) -> OnnxArtifact:
    """Export ``source`` to ``directory/model.onnx``, and check that the graph kept every declared dim.

    Args:
        exporter: One of ``fallback_chain``.
        source: The model.
        spec: The ``export:`` section.
        options: How the graph is written.
        directory: An existing empty directory.
        sizes: Sizes of the example inputs that the exporter gets; the source's example sizes if None.

    Raises:
        ExportError: The exporter failed, wrote another opset, or fixed a dim; the reason is in one line.
    """
    newest = options.target.max_opset
    auto = newest if isinstance(source.origin, OnnxFile) else min(_AUTO_OPSET, newest)
    opset = auto if spec.opset == "auto" else spec.opset
    sample = source.examples(source.example_sizes if sizes is None else sizes, 0)
    args = tuple(torch.from_numpy(sample[tensor.name]) for tensor in source.signature.inputs)
    exporter_options = exporter.options_model.model_validate(spec.options)
    python_code = exportable_python(source.origin.module) if isinstance(source.origin, Eager) else nullcontext()
    with plain_fake_quantize(), python_code, _recorded_gradients() as gradients:
        try:
            graph = exporter.export(ExportRequest(source, args, opset, directory, spec, exporter_options))
        except ExportError as error:
            dtype = source.complex if _COMPLEX.search(f"{error.message} {error.details}") else ""
            raise _with_cause(error, dtype, bool(gradients)) from error
    if not isinstance(source.origin, OnnxFile):
        fill_kernel_gaps(graph.model)
        center_raw_values(graph.model)
    artifact = normalize(graph.model, directory / "model.onnx", options)
    if spec.opset != "auto" and artifact.opset != opset:
        raise ExportError(
            f"{exporter.name} wrote opset {artifact.opset}, not {opset}",
            "set export.opset to auto, or try another exporter (export.exporter)",
            code="export.opset",
        )
    check_dims(artifact.signature, source.signature)
    return replace(artifact, guard_violations=graph.guard_violations)


def with_centered_values(artifact: OnnxArtifact, options: NormalizeOptions, directory: Path) -> OnnxArtifact | None:
    """Return the graph with the mean subtracted before each ``LayerNormalization``; None if it has none without.

    Args:
        artifact: The graph.
        options: How the graph is written.
        directory: An existing empty directory.
    """
    model = ir.load(artifact.path)
    if not center_all_values(model):
        return None
    centered = normalize(model, directory / artifact.path.name, options)
    return replace(centered, unused=artifact.unused, guard_violations=artifact.guard_violations)


@contextmanager
def _recorded_gradients() -> Iterator[list[object]]:
    """Record what is differentiated while the module runs."""
    autograd: Any = torch.autograd
    run = autograd._engine_run_backward  # noqa: SLF001 - what both `grad` and `backward` call
    differentiated: list[object] = []

    def record(outputs: object, *args: object, **options: object) -> object:
        differentiated.append(outputs)
        return run(outputs, *args, **options)

    autograd._engine_run_backward = record  # noqa: SLF001
    try:
        yield differentiated
    finally:
        autograd._engine_run_backward = run  # noqa: SLF001


def _with_cause(error: ExportError, dtype: str, has_gradients: bool) -> ExportError:  # noqa: FBT001
    """Return the error of an exporter with what the model computes and exporters rarely support: the usual cause."""
    if error.code not in _EXPORTER_ERRORS or not (dtype or has_gradients):
        return error
    if has_gradients:
        cause = "forward computes gradients with torch.autograd, which exporters rarely support"
        hint = "compute the derivative with ordinary operators, or return the value without its gradient"
    else:
        cause = f"the model computes in {dtype}, and ONNX has few operators for complex numbers"
        hint = "compute with real numbers: torch.view_as_real, or separate real and imaginary parts"
    return ExportError(f"{error.message}; {cause}", hint, code=error.code, where=error.where, details=error.details)


def check_dims(graph: Signature, declared: Signature) -> None:
    """Compare the graph's input dims with the declared ones.

    Raises:
        ExportError: A dim declared dynamic is fixed in the graph, or one declared fixed is dynamic.
    """
    for actual, expected in zip(graph.inputs, declared.inputs, strict=True):
        name = expected.name
        if actual.dtype != expected.dtype or len(actual.shape) != len(expected.shape):
            raise ExportError(
                f"input {name!r} is {actual.dtype} {list(actual.shape)} in the graph, "
                f"declared {expected.dtype} {list(expected.shape)}",
                code="export.input-type",
            )
        for axis, (actual_dim, declared_dim) in enumerate(zip(actual.shape, expected.shape, strict=True)):
            if isinstance(declared_dim, str) and isinstance(actual_dim, int):
                raise specialized(declared, name, axis, str(actual_dim))
            if isinstance(declared_dim, int) and actual_dim != declared_dim:
                raise ExportError(
                    f"axis {axis} of input {name!r} is declared {declared_dim}, but is {actual_dim!r} in the graph",
                    "declare it as a dynamic dim, or make its size fixed in the model",
                    code="export.generalized-dim",
                )
