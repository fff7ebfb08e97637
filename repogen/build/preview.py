"""What a build would do: the models, why each would be built, its cost, and which shard builds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.plan import ModelPlan, PlanReport
from repogen.build.costs import read_costs
from repogen.build.dependencies import ensemble_dependencies
from repogen.build.fingerprint import current_inputs, step_inputs
from repogen.build.incremental import newest_version
from repogen.build.pipeline import plan_build
from repogen.build.shards import split, units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.plan import Cost
    from repogen.build.plan import BuildOptions, BuildPlan
    from repogen.spec.models import Spec


def preview(spec: Spec, options: BuildOptions, shards: int | None = None) -> PlanReport:
    """Return what a build would do; nothing is written.

    Args:
        spec: The spec.
        options: Options of the build.
        shards: Number of shards; None to not use shards.

    Raises:
        RepogenError: A model name is unknown, the repository cannot be used, or MLflow is not configured.
    """
    plan = plan_build(spec, options, writes=False)
    if plan.pending:
        from repogen.build.preconditions import check_repository, without_rejected  # noqa: PLC0415 - as in `build`

        plan = without_rejected(plan, check_repository)
    costs = read_costs(plan.spec)
    seconds = {name: costs[name].seconds if name in plan.pending else 0.0 for name in plan.names}
    parts: Sequence[Sequence[str]] = (
        [] if shards is None else split(units(plan.spec.models, plan.names), seconds, shards)
    )
    shard_of = {name: number for number, part in enumerate(parts, 1) for name in part}
    models = tuple(_model(plan, name, costs[name], shard_of.get(name)) for name in plan.names)
    return PlanReport(plan.place, plan.spec.release, models, shards, plan.notes)


def _model(plan: BuildPlan, name: str, cost: Cost, shard: int | None) -> ModelPlan:
    current = newest_version(plan.repository, name)
    recorded = {} if isinstance(current, str) else current[1].provenance.fingerprint
    dependencies = ensemble_dependencies(plan.spec.models, name)
    rejected = plan.rejected.get(name)
    return ModelPlan(
        name,
        plan.reasons.get(name, ()),
        None if isinstance(current, str) else current[0],
        dependencies,
        current_inputs(recorded, plan.spec, name) | step_inputs(dependencies, plan.repository),
        cost,
        shard,
        None if rejected is None else rejected.error,
    )
