"""Runs a pass: what it requires, the pass itself, and what its result must satisfy, in one place for all passes.

What needs the original model is measured by the worker: parity, quality, and the measured gain.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from repogen.artifacts.built_model import UNCHANGED, OnnxArtifact, PassOutcome
from repogen.errors import RepogenError, SourceError, first_line
from repogen.onnx_graph.normalize import NormalizeOptions, count_nodes, normalize
from repogen.optimize.interface import Pass, PassRequest
from repogen.optimize.runtime import runtime_nodes
from repogen.plugins import load_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from repogen.artifacts.tensors import TensorSpec
    from repogen.spec.models import PassSpec


class PassRejectedError(Exception):
    """The result of a pass is not used; the message is the reason."""


def load_pass(name: str) -> Pass:
    """Return a registered pass.

    Raises:
        SpecError: It is not registered, cannot be imported, or is not a pass.
    """
    return load_instance("repogen.passes", name, Pass)  # type: ignore[type-abstract] # an abstract class


@dataclass(frozen=True)
class SelectedPass:
    """A pass that a spec selects.

    Attributes:
        spec: Its entry in ``optimize:``.
        implementation: The pass.
    """

    spec: PassSpec
    implementation: Pass

    @property
    def lossy(self) -> bool:
        """Whether it computes in a lower precision."""
        return self.implementation.precision is not None

    @property
    def gated(self) -> bool:
        """Whether its result is used only if it is faster."""
        return self.implementation.gated if self.spec.gain is None else self.spec.gain

    @property
    def structural(self) -> bool:
        """Whether its result depends on nothing that is measured."""
        return not (self.lossy or self.gated)


def select_passes(passes: Iterable[PassSpec], load: Callable[[str], Pass] = load_pass) -> tuple[SelectedPass, ...]:
    """Return the passes that a spec selects, in order.

    Raises:
        SpecError: A pass is not registered, cannot be imported, or is not a pass.
    """
    return tuple(SelectedPass(spec, load(spec.name)) for spec in passes)


@dataclass(frozen=True)
class Workspace:
    """What passes need besides the graph.

    Attributes:
        options: How results are normalized and written.
        root: Directory of the spec.
        directory: Existing directory; each pass writes to its own subdirectory.
    """

    options: NormalizeOptions
    root: Path
    directory: Path


def optimize(
    artifact: OnnxArtifact, passes: Iterable[SelectedPass], workspace: Workspace
) -> tuple[OnnxArtifact, tuple[PassOutcome, ...]]:
    """Run passes in order.

    Args:
        artifact: The exported model; its files are not changed.
        passes: The passes.
        workspace: Where they work.

    Returns:
        The result of the last successful pass (``artifact`` if none was), and the outcome of every pass.

    Raises:
        SourceError: Data that the spec names for a pass cannot be used.
    """
    outcomes: list[PassOutcome] = []
    for selected in passes:
        artifact, outcome = run_pass(artifact, selected, workspace)
        outcomes.append(outcome)
    return artifact, tuple(outcomes)


def run_pass(artifact: OnnxArtifact, selected: SelectedPass, workspace: Workspace) -> tuple[OnnxArtifact, PassOutcome]:
    """Run one pass.

    Returns:
        Its result, or ``artifact`` if it is not used; and the outcome.

    Raises:
        SourceError: Data that the spec names for the pass cannot be used.
    """
    name = selected.spec.name
    number = sum(1 for _ in workspace.directory.glob("optimized-*"))
    directory = workspace.directory / f"optimized-{number}-{name}"
    (directory / "tool").mkdir(parents=True)
    outcome = replace(unapplied(name, artifact), lossy=selected.lossy)
    try:
        result = _run(artifact, selected, workspace, directory)
    except SourceError:
        raise
    except (PassRejectedError, RepogenError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a pass is third-party code; any failure drops it
        reason = f"{type(error).__name__}: {first_line(error, directory)}"
    else:
        shutil.rmtree(directory / "tool")
        outcome = replace(outcome, applied=True, nodes_after=result.nodes, operators_after=result.operators)
        return result, outcome
    discard(directory)
    return artifact, replace(outcome, reason=reason)


def unapplied(name: str, artifact: OnnxArtifact) -> PassOutcome:
    """Return the outcome of a pass that has not changed a graph."""
    operators = artifact.operators
    return PassOutcome(
        name,
        applied=False,
        nodes_before=artifact.nodes,
        nodes_after=artifact.nodes,
        operators_before=operators,
        operators_after=operators,
    )


def discard(directory: Path) -> None:
    """Remove the files of a result that is not used: each is as large as the model. The directory stays."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _run(artifact: OnnxArtifact, selected: SelectedPass, workspace: Workspace, directory: Path) -> OnnxArtifact:
    implementation, options = selected.implementation, workspace.options
    request = PassRequest(
        artifact,
        implementation.options_model.model_validate(selected.spec.options),
        options.target,
        workspace.root,
        directory / "tool",
    )
    if reason := implementation.requires(request):
        raise PassRejectedError(reason)
    model = implementation(request)
    if count_nodes(model) == artifact.nodes:
        raise PassRejectedError(UNCHANGED)
    if reason := implementation.ensures(request, model):
        raise PassRejectedError(reason)
    result = normalize(model, directory / "model.onnx", options)
    del model  # it holds every weight, and the checks need as much memory again
    _check(artifact, result)
    if selected.structural:
        _require_no_larger_graph(artifact, result, directory)
    return result


def _check(before: OnnxArtifact, after: OnnxArtifact) -> None:
    """Check what every result must satisfy.

    Raises:
        PassRejectedError: It is not valid, or changed an input or the dtype or rank of an output.
    """
    try:
        onnx.checker.check_model(after.path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise PassRejectedError(f"its result fails onnx.checker: {first_line(error, after.path.parent)}") from error
    for old, new in zip(before.signature.inputs, after.signature.inputs, strict=True):
        if _sizes(old) != _sizes(new):
            raise PassRejectedError(
                f"it changed the dims of input {old.name!r} from {list(old.shape)} to {list(new.shape)}"
            )
    pairs = zip(
        (*before.signature.inputs, *before.signature.outputs),
        (*after.signature.inputs, *after.signature.outputs),
        strict=True,
    )
    for old, new in pairs:
        if (old.dtype, len(old.shape)) != (new.dtype, len(new.shape)):
            raise PassRejectedError(
                f"it changed {old.name!r} from {old.dtype} {list(old.shape)} to {new.dtype} {list(new.shape)}"
            )


def _sizes(spec: TensorSpec) -> list[int | None]:
    """Return the fixed sizes of a tensor; None for a dynamic one, which may have another name."""
    return [None if isinstance(dim, str) else dim for dim in spec.shape]


def _require_no_larger_graph(before: OnnxArtifact, after: OnnxArtifact, directory: Path) -> None:
    """Check a result whose gain is not measured.

    Raises:
        PassRejectedError: ONNX Runtime's own graph would be larger.
    """
    nodes_before, nodes_after = (runtime_nodes(artifact, directory) for artifact in (before, after))
    if nodes_after > nodes_before:
        raise PassRejectedError(
            f"ONNX Runtime's own optimized graph would have more nodes ({nodes_before} -> {nodes_after})"
        )
