"""Reasons why a build, or one of its models, would fail in its last step; checked before anything is exported."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.report import ModelReport, Status
from repogen.build.dependencies import ensemble_dependencies
from repogen.build.ensemble_steps import require_version
from repogen.errors import ErrorRecord, PublishError, RepogenError
from repogen.repository.hold import hold_of
from repogen.repository.layout import latest_version, model_dir, next_version, versions
from repogen.repository.publish import is_foreign, require_plain_directory, require_publishable
from repogen.repository.stage import require_step
from repogen.repository.workspace import preflight
from repogen.source.python.requirements import check_installed
from repogen.spec.sources import EnsembleSource, PythonSource
from repogen.worker.requirements import require_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from repogen.build.plan import BuildPlan
    from repogen.spec.models import Spec

_LINE = re.compile(r":\d+$")
"""End of a position in a file, such as ``models.py:5``; a key path such as ``models.digits.triton`` has no line."""


def check_preconditions(plan: BuildPlan) -> BuildPlan:
    """Return the plan without the models that cannot be published; their reports have the reason.

    Raises:
        RepogenError: No model can be built: an extra is not installed, or the repository cannot be written.
    """
    require_installed(plan.spec.models[name] for name in plan.pending)
    preflight(plan.repository, plan.options.stage_dir)
    return without_rejected(plan, _check_requirements, check_repository)


def without_rejected(plan: BuildPlan, *checks: Callable[[BuildPlan, str], None]) -> BuildPlan:
    """Return the plan without the models that fail a check; their reports have the reason.

    The steps of a rejected ensemble are rejected as well: they would be verified, and held back.

    Args:
        plan: The plan.
        checks: Raise a RepogenError if the named model must be rejected.
    """
    errors: dict[str, ErrorRecord] = {}
    for name in plan.pending:
        try:
            for check in checks:
                check(plan, name)
        except RepogenError as error:
            errors[name] = error.record
    while spread := {name: error for name, error in _spread(plan, errors) if name not in errors}:
        errors |= spread
    rejected = {
        name: ModelReport(name, Status.FAILED, error=with_place(plan.spec, name, error))
        for name, error in errors.items()
    }
    return replace(plan, pending=tuple(name for name in plan.pending if name not in errors), rejected=rejected)


def with_place(spec: Spec, name: str, error: ErrorRecord) -> ErrorRecord:
    """Return a model's error with its line: of the source, or of the key in the spec, or of the model in the spec."""
    return error if _LINE.search(error.where) else replace(error, where=spec.where(error.where or f"models.{name}"))


def _check_requirements(plan: BuildPlan, name: str) -> None:
    """Check the requirements of Python code.

    Raises:
        SourceError: Other versions are installed here.
    """
    source = plan.spec.models[name].source
    if isinstance(source, PythonSource):
        check_installed(source.requirements)


def check_repository(plan: BuildPlan, name: str) -> None:
    """Check what the repository contains; it is only read.

    Raises:
        RepogenError: The model, or the steps that it needs, cannot be published there.
    """
    source = plan.spec.models[name].source
    directory = model_dir(plan.repository, name)
    if name in plan.options.adopt and is_foreign(directory):
        require_plain_directory(directory)
    elif not plan.options.dry_run:
        require_publishable(directory)
    for step in source.steps if isinstance(source, EnsembleSource) else ():
        directory = model_dir(plan.repository, step.model)
        if step.model not in plan.pending:
            require_step(directory)
        if step.version is None:
            _require_newest_served(plan, step.model)
        if step.version is not None:
            existing = [next_version(directory)] if step.model in plan.pending else versions(directory)
            require_version(step.version, existing, step.model, f"models.{name}.source.steps")


def _require_newest_served(plan: BuildPlan, step: str) -> None:
    """Require that the version of a step that an ensemble is verified with is served.

    Raises:
        PublishError: Another version is held.
    """
    directory = model_dir(plan.repository, step)
    held = hold_of(directory)
    if held is not None and (step in plan.pending or held != latest_version(directory)):
        place = plan.options.place(plan.repository)
        raise PublishError(
            f"its step {step} is held at version {held}, but the ensemble would be verified with another one",
            f"end the hold with `repogen rollback {step} --release --repository {place}`",
            code="ensemble.held-step",
        )


def _spread(plan: BuildPlan, errors: dict[str, ErrorRecord]) -> Iterator[tuple[str, ErrorRecord]]:
    """Yield the models that cannot be built because an ensemble or a step was rejected."""
    for ensemble in plan.pending:
        steps = [step for step in ensemble_dependencies(plan.spec.models, ensemble) if step in plan.pending]
        for step in steps:
            if (error := errors.get(step)) is not None:
                yield ensemble, _because(error, "ensemble.step", f"its step {step} cannot be built", f"fix {step}")
            if (error := errors.get(ensemble)) is not None:
                hint = f"fix {ensemble}, or build this model alone with `--model {step}`"
                yield (
                    step,
                    _because(error, "ensemble.held-back", f"the ensemble {ensemble}, which uses it, fails", hint),
                )


def _because(error: ErrorRecord, code: str, message: str, hint: str) -> ErrorRecord:
    reason = error.summary
    return ErrorRecord(code, f"not built, because {message}: {reason}", hint, exit_code=error.exit_code)
