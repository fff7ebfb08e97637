"""``repogen.versions``, ``verify`` and ``rollback``: the versions of a repository."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.registry import open_registry
from repogen.artifacts.rollback import RollbackOptions
from repogen.errors import SpecError
from repogen.versions import listing
from repogen.versions import rollback as rolling_back
from repogen.versions import verify as verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.inventory import VersionsReport
    from repogen.artifacts.registry import ModelRegistry
    from repogen.artifacts.rollback import RollbackReport
    from repogen.artifacts.verification import VerifyReport
    from repogen.spec.models import Spec


def versions(
    name: str | None = None,
    *,
    repository: Path | str = "model_repository",
    spec: Spec | None = None,
    tracking_uri: str | None = None,
) -> VersionsReport:
    """Return the versions of a repository, and which of them Triton serves, as ``repogen versions`` does.

    Example::

        report = repogen.versions("digits")
        [version.version for version in report.models[0].versions if version.served]  # [3]

    Args:
        name: Only this model; all when None.
        repository: Any model repository.
        spec: A loaded spec that names the MLflow server.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's. It is asked for the numbers and
            aliases of versions that were registered; a server that does not respond is a note in the report.

    Raises:
        repogen.errors.SpecError: The repository, or the model, does not exist.
        repogen.errors.PublishError: A directory can't be read.
    """
    names = () if name is None else (name,)
    return listing.list_versions(Path(repository), names, partial(_configured_registry, spec, tracking_uri))


def verify(repository: Path | str = "model_repository", *, models: Sequence[str] = ()) -> VerifyReport:
    """Compare every file of a repository with the manifests of its versions, as ``repogen verify`` does.

    Example::

        repogen.verify("model_repository").findings  # ()

    Args:
        repository: A repository that repogen built.
        models: Names of the models; all when empty.

    Returns:
        The number of files and bytes that were compared, and every difference.

    Raises:
        repogen.errors.SpecError: The repository or a model does not exist, or it has no models.
        repogen.errors.PublishError: A directory can't be read.
    """
    return verification.verify(Path(repository), models)


def rollback(  # noqa: PLR0913 - one parameter per option of `repogen rollback`
    name: str,
    to: int | None = None,
    *,
    repository: Path | str = "model_repository",
    release: bool = False,
    allow_breaking: bool = False,
    dry_run: bool = False,
    stage_dir: Path | str | None = None,
) -> RollbackReport:
    """Make a repository serve an older version of a model again, as ``repogen rollback`` does.

    The version is held: ``build`` and ``sync`` do not change what is served until ``release=True``.

    Example::

        report = repogen.rollback("digits")
        report.before, report.after  # (3,), (2,)

    Args:
        name: The model.
        to: The version to serve; the newest one below the served one when None.
        repository: A repository that repogen built or synced.
        release: End the hold: the newest version is served again; in a synced repository, the next sync follows the
            alias again.
        allow_breaking: Change the model although an ensemble would no longer load.
        dry_run: Change nothing.
        stage_dir: Stage here instead of next to the repository; it must be on the same filesystem.

    Returns:
        What was served before, and what is served now.

    Raises:
        repogen.errors.SpecError: The repository, the model or the version does not exist.
        repogen.errors.PublishError: The change was rejected or failed, and the repository is unchanged.
    """
    directory = None if stage_dir is None else Path(stage_dir)
    options = RollbackOptions(to, release, allow_breaking, dry_run, directory)
    return rolling_back.roll_back(Path(repository), name, options)


def _configured_registry(spec: Spec | None, tracking_uri: str | None) -> ModelRegistry | None:
    """Connect to the model registry, None if none is configured."""
    try:
        return open_registry(spec, tracking_uri)
    except SpecError as error:
        if error.code != "tracking.no-uri":
            raise
        return None
