"""Rules that compare a graph with the target release; separate from ``graph`` because they do not need protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding

if TYPE_CHECKING:
    from repogen.targets import Target


def target_findings(opset: int, ir_version: int, target: Target) -> list[Finding]:
    """Return the violations of RG301 and RG302: what is too new for the target release.

    Args:
        opset: The graph's ``ai.onnx`` opset.
        ir_version: The graph's ONNX IR version; 0 if not known.
        target: The Triton release that serves the graph.
    """
    findings = []
    release = f"Triton {target.release} (ONNX Runtime {target.onnxruntime})"
    if opset > target.max_opset:
        message = f"opset {opset} is too new: {release} supports up to {target.max_opset}"
        hint = f"export with opset {target.max_opset}, or use a newer target release"
        findings.append(Finding("RG301", "error", message, hint))
    if ir_version > target.max_ir:
        message = f"ONNX IR version {ir_version} is too new: {release} supports up to {target.max_ir}"
        hint = "export with an older onnx package, or use a newer target release"
        findings.append(Finding("RG302", "error", message, hint))
    return findings
