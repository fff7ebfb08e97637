"""Optimization passes, each between what it requires and what its result must ensure.

Parity of the result is ensured by the worker's sequence, which validates what comes out and falls back to what went in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import onnx
import onnx_ir as ir

from repogen.artifacts.built_model import UNCHANGED, OnnxArtifact, PassOutcome
from repogen.errors import RepogenError, first_line
from repogen.onnx_graph.describe import count_nodes
from repogen.onnx_graph.normalize import Finishing, finish
from repogen.optimize.runtime_graph import runtime_nodes
from repogen.optimize.simplify import Onnxsim

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class Pass(Protocol):
    """A transformation of a graph."""

    name: str

    def requires(self, artifact: OnnxArtifact) -> str:
        """Return why the pass cannot run on ``artifact``; empty when it can."""

    def __call__(self, artifact: OnnxArtifact) -> onnx.ModelProto:
        """Return the transformed model; any exception drops the pass."""


PASSES: dict[str, Pass] = {"onnxsim": Onnxsim()}


def optimize(
    artifact: OnnxArtifact,
    names: Iterable[str],
    finishing: Finishing,
    directory: Path,
    passes: Mapping[str, Pass] = PASSES,
) -> tuple[OnnxArtifact, tuple[PassOutcome, ...]]:
    """Run the named passes in order.

    Args:
        artifact: The exported model; its files are not changed.
        names: Passes of the spec.
        finishing: How results are written.
        directory: Existing directory; each pass writes to a subdirectory of its own.
        passes: Passes by name.

    Returns:
        The result of the last pass that was kept (``artifact`` itself if none was), and every pass's outcome.
    """
    outcomes: list[PassOutcome] = []
    for index, name in enumerate(names):
        target = directory / f"optimized-{index}-{name}"
        target.mkdir()
        result, reason = _run(passes[name], artifact, finishing, target)
        outcomes.append(PassOutcome(name, result is not None, artifact.nodes, (result or artifact).nodes, reason))
        artifact = result or artifact
    return artifact, tuple(outcomes)


def _run(step: Pass, artifact: OnnxArtifact, finishing: Finishing, directory: Path) -> tuple[OnnxArtifact | None, str]:
    if refusal := step.requires(artifact):
        return None, refusal
    try:
        model = ir.from_proto(step(artifact))
        if count_nodes(model) == artifact.nodes:
            return None, UNCHANGED
        result = finish(model, directory / "model.onnx", finishing)
        reason = _ensures(artifact, result, directory)
    except RepogenError as error:
        return None, error.message
    except Exception as error:  # noqa: BLE001 - a pass is third-party code; whatever it raises drops it
        return None, f"{type(error).__name__}: {first_line(error, directory)}"
    return (None, reason) if reason else (result, "")


def _ensures(before: OnnxArtifact, after: OnnxArtifact, directory: Path) -> str:
    """Return what the result broke; empty when nothing."""
    try:
        onnx.checker.check_model(after.path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return f"its result fails the checker: {first_line(error, after.path.parent)}"
    for old, new in zip(before.signature.inputs, after.signature.inputs, strict=True):
        if [isinstance(d, str) for d in old.shape] != [isinstance(d, str) for d in new.shape]:
            return f"it changed the dims of input {old.name!r} from {list(old.shape)} to {list(new.shape)}"
    was, now = (runtime_nodes(artifact, directory) for artifact in (before, after))
    if now > was:
        return f"ONNX Runtime's own optimized graph would have more nodes with it ({was} -> {now})"
    return ""
