"""Everything that is proved about one ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from repogen.artifacts.source import Eager, Program
from repogen.validate.batch import check_batch
from repogen.validate.compare import tolerances
from repogen.validate.diverge import first_divergence
from repogen.validate.golden import GoldenKeeper
from repogen.validate.parity import check_parity
from repogen.validate.runtime import OnnxModel
from repogen.validate.structure import check_structure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from repogen.artifacts.built_model import BatchReport, OnnxArtifact, ParityReport
    from repogen.artifacts.source import Reference, SourceModel
    from repogen.artifacts.tensors import Arrays
    from repogen.spec.models import ModelSpec
    from repogen.targets import Target


@dataclass(frozen=True)
class Validation:
    """What was measured.

    Attributes:
        parity: The comparison with PyTorch.
        batch: The verdict on batching.
    """

    parity: ParityReport
    batch: BatchReport


def validate(
    artifact: OnnxArtifact,
    source: SourceModel,
    model: ModelSpec,
    target: Target,
    golden_dir: Path,
    doubts: Sequence[dict[str, int]] = (),
) -> Validation:
    """Check structure, parity and batchability of ``artifact``, and write golden tensors to ``golden_dir``.

    Args:
        artifact: The graph.
        source: What it was made of.
        model: The spec entry.
        target: The Triton release that is to load it.
        golden_dir: Created.
        doubts: Sizes that parity must be measured at, beside those of the sweep.

    Raises:
        ExportError: Broken, or too new for the target (exit 3).
        ParityError: ONNX Runtime and PyTorch disagree (exit 4).
        ConfigError: Batching was asked for and the model does not batch (exit 5).
    """
    check_structure(artifact, target)
    allowed = tolerances(source.signature, model.parity, source.precision)
    explain = partial(_explain, artifact, source, allowed)
    return prove(source, OnnxModel(artifact), model, golden_dir, explain=explain, doubts=doubts)


def prove(
    source: SourceModel,
    published: Reference,
    model: ModelSpec,
    golden_dir: Path,
    *,
    explain: Callable[[Arrays], str] = lambda _: "",
    doubts: Sequence[dict[str, int]] = (),
) -> Validation:
    """Check parity and batchability of what is published, and write golden tensors to ``golden_dir``.

    Args:
        source: What it was made of.
        published: It, running.
        model: The spec entry.
        golden_dir: Created.
        explain: Says in a line what goes wrong on the inputs of the first case that disagrees.
        doubts: Sizes that parity must be measured at, beside those of the sweep.

    Raises:
        ParityError: The two disagree (exit 4).
        ConfigError: Batching was asked for and the model does not batch (exit 5).
    """
    allowed = tolerances(source.signature, model.parity, source.precision)
    golden = GoldenKeeper()
    parity = check_parity(source, published, model.parity, allowed, golden, explain=explain, doubts=doubts)
    batch = check_batch(source, published, model.triton.max_batch_size, allowed, model.parity.seed)
    golden_dir.mkdir(parents=True, exist_ok=True)
    golden.write(golden_dir, source.signature.batch_dim if batch.batchable else None, allowed)
    return Validation(parity, batch)


def _explain(
    artifact: OnnxArtifact, source: SourceModel, allowed: dict[str, tuple[float, float]], inputs: Arrays
) -> str:
    """Name the first operator of a PyTorch model that the graph gets wrong; empty when that can't be told."""
    if not isinstance(source.origin, (Eager, Program)):
        return ""
    rtol = max(limits[0] for limits in allowed.values())
    atol = max(limits[1] for limits in allowed.values())
    ordered = {spec.name: inputs[spec.name] for spec in source.signature.inputs}
    try:
        found = first_divergence(source.origin.module, artifact.path, ordered, rtol or 1e-3, atol or 1e-5)
    except Exception:  # noqa: BLE001 - the disagreement is the news; a graph that can't be taken apart must not hide it
        return ""
    return "" if found is None else str(found)
