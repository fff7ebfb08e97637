"""``repogen.plan``: what a build would do, without building."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.api.spec import spec_of
from repogen.artifacts.progress import Silent
from repogen.build.dependencies import step_versions
from repogen.build.plan import BuildOptions
from repogen.errors import SpecError
from repogen.files.url import RepositoryUrl, location
from repogen.stores.open import open_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.plan import PlanReport
    from repogen.artifacts.progress import Progress
    from repogen.spec.models import Spec

_MAX_SHARDS = 1000


def plan(  # noqa: PLR0913 - one parameter per option of `repogen plan`
    spec: Spec | Path | str = "repogen.yaml",
    *,
    models: Sequence[str] = (),
    repository: Path | str | None = None,
    target: str | None = None,
    force: bool = False,
    track: bool = True,
    tracking_uri: str | None = None,
    shards: int | None = None,
    progress: Progress | None = None,
) -> PlanReport:
    """Return what ``repogen build`` would do with the same arguments, as ``repogen plan`` does; nothing is written.

    Example::

        plan = repogen.plan("repogen.yaml", shards=2)
        [(model.name, model.shard, model.reasons) for model in plan.pending]

    Args:
        spec: A spec file, or a spec that ``repogen.load_spec`` returned.
        models: Names of the models; all when empty.
        repository: Compare with this repository instead of the spec's.
        target: Triton release, such as ``24.10``; ignored for a loaded spec, which has a release.
        force: Plan to build models that are up to date as well.
        track: Whether the build tracks in MLflow where the spec or ``tracking_uri`` says so: a version that is not
            registered is then built again.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.
        shards: Distribute the models among this number of shards, by the cost of those that are pending.
        progress: Receives progress events; silent by default.

    Returns:
        For each model whether and why it would be built, or why it is rejected, what it depends on, its inputs, and the
        cost of building it.

    Raises:
        repogen.errors.SpecError: The spec is wrong, or the repository cannot be used.
        repogen.errors.RepogenError: The store of the repository does not respond.
    """
    from repogen.build.preview import preview  # noqa: PLC0415 - --help does not need it

    loaded_spec = spec_of(spec, target)
    if shards is not None and not 1 <= shards <= _MAX_SHARDS:
        raise SpecError(f"{shards} is not a number of shards from 1 to {_MAX_SHARDS}", code="plan.shard")
    options = BuildOptions(
        models=tuple(models),
        repository=None if repository is None else location(repository),
        force=force,
        track=track,
        tracking_uri=tracking_uri,
    )
    place = loaded_spec.repository if options.repository is None else options.repository
    if not isinstance(place, RepositoryUrl):
        return preview(loaded_spec, options, shards)
    with open_url(place, None, progress or Silent(), older=step_versions(loaded_spec)) as opened:
        local = replace(options, repository=opened.path, store=opened)
        return opened.with_urls(preview(loaded_spec, local, shards))
