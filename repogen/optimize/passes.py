"""Runs optimization passes: what a pass requires, the pass itself, and what its result must satisfy.

The worker validates the parity of the result, and falls back to the exported model if it is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnxruntime

from repogen.artifacts.built_model import UNCHANGED, OnnxArtifact, PassOutcome
from repogen.errors import RepogenError, first_line
from repogen.onnx_graph.normalize import NormalizeOptions, count_nodes, normalize
from repogen.onnx_graph.session import open_session
from repogen.optimize.interface import Pass
from repogen.plugins import load_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from repogen.spec.models import PassSpec


class PassRejectedError(Exception):
    """The result of a pass is not used; the message is the reason."""


def load_pass(name: str) -> Pass:
    """Return a registered pass.

    Raises:
        SpecError: It is not registered, or cannot be imported.
    """
    return load_instance("repogen.passes", name, Pass)  # type: ignore[type-abstract] # a Protocol


def optimize(
    artifact: OnnxArtifact,
    passes: Iterable[PassSpec],
    options: NormalizeOptions,
    directory: Path,
    load: Callable[[str], Pass] = load_pass,
) -> tuple[OnnxArtifact, tuple[PassOutcome, ...]]:
    """Run passes in order.

    Args:
        artifact: The exported model; its files are not changed.
        passes: The ``optimize:`` section.
        options: How results are normalized and written.
        directory: Existing directory; each pass writes to its own subdirectory.
        load: Returns a pass by its name.

    Returns:
        The result of the last successful pass (``artifact`` if none was), and the outcome of every pass.
    """
    outcomes: list[PassOutcome] = []
    for index, spec in enumerate(passes):
        target = directory / f"optimized-{index}-{spec.name}"
        target.mkdir()
        before, reason = artifact, ""
        try:
            artifact = _run(load(spec.name), spec, artifact, options, target)
        except (PassRejectedError, RepogenError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a pass is third-party code; any failure drops it
            reason = f"{type(error).__name__}: {first_line(error, target)}"
        outcomes.append(PassOutcome(spec.name, artifact is not before, before.nodes, artifact.nodes, reason))
    return artifact, tuple(outcomes)


def _run(
    step: Pass, spec: PassSpec, artifact: OnnxArtifact, options: NormalizeOptions, directory: Path
) -> OnnxArtifact:
    if reason := step.requires(artifact):
        raise PassRejectedError(reason)
    model = step(artifact, step.options_model.model_validate(spec.options))
    if count_nodes(model) == artifact.nodes:
        raise PassRejectedError(UNCHANGED)
    result = normalize(model, directory / "model.onnx", options)
    _ensure(artifact, result, directory)
    return result


def _ensure(before: OnnxArtifact, after: OnnxArtifact, directory: Path) -> None:
    """Check the result of a pass.

    Raises:
        PassRejectedError: It is not valid, changed an input, or would make ONNX Runtime's own graph larger.
    """
    try:
        onnx.checker.check_model(after.path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise PassRejectedError(f"its result fails onnx.checker: {first_line(error, after.path.parent)}") from error
    for old, new in zip(before.signature.inputs, after.signature.inputs, strict=True):
        if [isinstance(d, str) for d in old.shape] != [isinstance(d, str) for d in new.shape]:
            raise PassRejectedError(
                f"it changed the dims of input {old.name!r} from {list(old.shape)} to {list(new.shape)}"
            )
    nodes_before, nodes_after = (runtime_nodes(artifact, directory) for artifact in (before, after))
    if nodes_after > nodes_before:
        raise PassRejectedError(
            f"ONNX Runtime's own optimized graph would have more nodes ({nodes_before} -> {nodes_after})"
        )


def runtime_nodes(artifact: OnnxArtifact, directory: Path) -> int:
    """Return the number of top-level nodes of the graph after ONNX Runtime's own optimizations on the CPU.

    Args:
        artifact: The model.
        directory: Directory for temporary files.
    """
    optimized, weights = directory / "runtime.onnx", directory / "runtime.data"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Extended, not all: layout optimizations depend on the machine's instruction set.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimized)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights.name)
    open_session(artifact.path, options)
    nodes = len(onnx.load(optimized, load_external_data=False).graph.node)
    for path in (optimized, weights):
        path.unlink(missing_ok=True)
    return nodes
