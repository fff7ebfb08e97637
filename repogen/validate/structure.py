"""Checks that a model is valid, and that the target release can load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from repogen.errors import ExportError, first_line

if TYPE_CHECKING:
    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.targets import Target


def check_structure(artifact: OnnxArtifact, target: Target) -> None:
    """Run onnx.checker with shape inference, and hold opset and IR against the target's limits.

    The checker alone accepts IR 14 and opset 999, and reads an empty file as an empty model (triton-facts).

    Raises:
        ExportError: The model is broken, or too new for the target.
    """
    limits = f"Triton {target.release} (ONNX Runtime {target.onnxruntime})"
    if artifact.opset > target.max_opset:
        raise ExportError(
            f"the model uses opset {artifact.opset}; {limits} loads up to {target.max_opset}",
            f"set export.opset to {target.max_opset} or auto, or a newer target.triton",
            code="validate.opset",
        )
    if artifact.ir_version > target.max_ir:
        raise ExportError(
            f"the model has ONNX IR {artifact.ir_version}; {limits} loads up to {target.max_ir}",
            "set export.opset lower, or a newer target.triton",
            code="validate.ir",
        )
    try:
        onnx.checker.check_model(artifact.path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(
            f"onnx.checker refuses the exported model: {first_line(error, artifact.path.parent)}",
            "try another exporter: `repogen diagnose` tells how each fares",
            code="validate.checker",
            details=str(error),
        ) from error
