"""An ensemble's config.pbtxt: its steps, held against the configs of the models that they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.versions import ModelConfig
from repogen.triton_config.render.model import (
    refuse_findings,
    refuse_other_than_meant,
    refuse_unkept_wishes,
    refuse_unservable,
)
from repogen.triton_config.render.model_facts import ConfiguredModel, Known
from repogen.triton_config.render.named_files import no_golden_inputs, with_files
from repogen.triton_config.render.plan import EnsemblePlan, message_for, plan_for
from repogen.triton_config.render.template import ENSEMBLE_TEMPLATE, origin_of, render
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.ensemble_repository import Neighbor, circle_findings, ensemble_findings
from repogen.triton_config.sections.model import NOT_OF_ENSEMBLES
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tritonclient.grpc.model_config_pb2 import ModelConfig as Message

    from repogen.artifacts.built_model import BatchReport
    from repogen.artifacts.steps import EnsembleArtifact, EnsembleStep


def configure_ensemble(  # noqa: PLR0913 - all that a config is made of
    name: str,
    model: ConfiguredModel,
    artifact: EnsembleArtifact,
    batch: BatchReport,
    neighbors: Mapping[str, Neighbor],
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
        neighbors: The models of its steps as they are to be served, by name.
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
    known, named_files = with_files(known, own, labels or {}, root, no_golden_inputs)
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
    neighbors = {**neighbors, name: Neighbor(parsed, ())}
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
