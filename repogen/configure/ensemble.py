"""An ensemble's config.pbtxt: its steps, held against the configs of the models that they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.configure.build import (
    refuse_findings,
    refuse_other_than_meant,
    refuse_unkept_wishes,
    refuse_unservable,
)
from repogen.configure.files import with_files
from repogen.configure.known import Known
from repogen.configure.plan import message_for, plan_for
from repogen.configure.render import ENSEMBLE_TEMPLATE, origin_of, render
from repogen.pbtxt import Neighbor, circle_findings, config_findings, differences, ensemble_findings, neighbor_at, parse
from repogen.spec.steps import NOT_OF_ENSEMBLES
from repogen.values.versions import ModelConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.pbtxt import TensorView
    from repogen.spec.models import ModelSpec
    from repogen.spec.triton import VersionPolicySpec
    from repogen.values.artifacts import BatchReport
    from repogen.values.steps import EnsembleArtifact, EnsembleStep


@dataclass(frozen=True)
class EnsemblePlan:
    """The template's variables, under the names that docs/config.md gives.

    Attributes:
        name: Model name.
        max_batch_size: 0 when the ensemble does not batch.
        batch_origin: Where it comes from, for people.
        inputs: Tensors with Triton's dtypes and dims.
        outputs: The same.
        version_policy: None when not asked for.
        steps: Each with ``model``, ``version`` (None for the newest), ``inputs`` and ``outputs``.
        more: What else is said, as a message.
    """

    name: str
    max_batch_size: int
    batch_origin: str
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]
    version_policy: VersionPolicySpec | None
    steps: tuple[EnsembleStep, ...]
    more: Message


def configure_ensemble(  # noqa: PLR0913 - all that a config is made of
    name: str,
    model: ModelSpec,
    artifact: EnsembleArtifact,
    batch: BatchReport,
    repository: Path,
    *,
    templates: Path | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    root: Path = Path(),
) -> ModelConfig:
    """Write config.pbtxt for an ensemble that was composed and run.

    Args:
        name: Model name.
        model: The model's spec.
        artifact: Its steps and its signature.
        batch: The verdict on batching.
        repository: A repository that holds the steps' models as they are to be served.
        templates: The spec's directory of template overrides.
        labels: Names of classes by output; each becomes a file that the config names.
        root: Directory that the spec's paths start from.

    Returns:
        The config; its signature is the ensemble's, with full shapes.

    Raises:
        ConfigError: The template is wrong, or the result breaks a rule, alone or with the models that it names.
    """
    key = f"models.{name}"
    refuse_unservable(artifact.signature, name)
    refuse_unkept_wishes(model.triton, batch, batch.max_batch_size, f"{key}.triton")
    # What all models of a spec inherit, such as instance groups, an ensemble has no use for, and Triton refuses.
    own = model.triton.model_copy(update=NOT_OF_ENSEMBLES)
    known = Known(name, artifact.signature, batch.max_batch_size, backend="")
    known, named_files = with_files(known, own, labels or {}, root, None)
    plan = plan_for(own, known)
    shown = EnsemblePlan(
        *(plan.name, plan.max_batch_size, plan.batch_origin, plan.inputs, plan.outputs),
        *(plan.version_policy, artifact.steps, plan.more),
    )
    text = render(shown, templates, ENSEMBLE_TEMPLATE)
    origin = f"config.pbtxt of {name}, rendered from {origin_of(templates, ENSEMBLE_TEMPLATE)}"
    parsed = parse(text, origin)
    meant = message_for(replace(plan, instance_groups=()))
    meant.platform = "ensemble"
    _set_steps(meant, artifact.steps)
    refuse_other_than_meant(name, differences(meant, parsed), origin)
    neighbors = {step.model: neighbor_at(repository / step.model) for step in artifact.steps}
    neighbors[name] = Neighbor(parsed, ())
    findings = [
        *config_findings(parsed, name),
        *ensemble_findings(parsed, neighbors),
        *circle_findings(name, neighbors),
    ]
    refuse_findings(findings, name, lambda _: f"{key}.source.steps")
    return ModelConfig(name, text, batch.max_batch_size, artifact.signature, named_files)


def _set_steps(message: Message, steps: Sequence[EnsembleStep]) -> None:
    for step in steps:
        added = message.ensemble_scheduling.step.add(model_name=step.model, model_version=step.version or -1)
        added.input_map.update(step.inputs)
        added.output_map.update(step.outputs)
