"""``repogen.versions`` and ``verify``: the versions of a repository."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.registry import open_registry
from repogen.errors import SpecError
from repogen.versions import listing
from repogen.versions import verify as verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.inventory import VersionsReport
    from repogen.artifacts.registry import ModelRegistry
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


def _configured_registry(spec: Spec | None, tracking_uri: str | None) -> ModelRegistry | None:
    """Connect to the model registry, None if none is configured."""
    try:
        return open_registry(spec, tracking_uri)
    except SpecError as error:
        if error.code != "tracking.no-uri":
            raise
        return None
