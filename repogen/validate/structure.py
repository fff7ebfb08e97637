"""Checks that a model is valid, and that the target release can load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from repogen.errors import ConfigError, ExportError, first_line
from repogen.triton_config.rules.target import target_findings
from repogen.validate.runtime import OTHER_EXPORTER

if TYPE_CHECKING:
    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.targets import Target


class TargetLimitError(ConfigError):
    """The graph is too new for the target release: RG301 or RG302; another exporter may write an older one."""


def check_structure(artifact: OnnxArtifact, target: Target) -> None:
    """Run onnx.checker with shape inference, and compare opset and IR version with the target's limits.

    The checker alone accepts IR 14 and opset 999, and reads an empty file as an empty model.

    Raises:
        ExportError: The model is broken.
        TargetLimitError: The model is too new for the target.
    """
    findings = target_findings(artifact.opset, artifact.ir_version, target)
    if findings:
        raise TargetLimitError(findings[0].message, findings[0].hint, code=findings[0].code)
    try:
        onnx.checker.check_model(artifact.path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(
            f"onnx.checker rejects the exported model: {first_line(error, artifact.path.parent)}",
            OTHER_EXPORTER,
            code="validate.checker",
            details=str(error),
        ) from error
