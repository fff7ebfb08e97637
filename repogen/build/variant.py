"""Builds of one model with other optimization passes, for ``repogen tune``: verified, and published nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.build import pipeline
from repogen.build.plan import BuildOptions
from repogen.build.verified import export_reasons
from repogen.repository.layout import latest_version, model_dir

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.report import ModelReport
    from repogen.spec.models import PassSpec, Spec


@dataclass(frozen=True)
class VariantBuilder:
    """A ``repogen.tune.interface.PassBuilder``.

    Each build stores its verified model in the user's cache, so a later `repogen build` with the same passes publishes
    the same graph without another export.

    Attributes:
        spec: The spec.
        name: The model.
        tracking_uri: MLflow server of a source in MLflow; None for that of the environment or the spec.
    """

    spec: Spec
    name: str
    tracking_uri: str | None = None

    def outdated(self, repository: Path, version: int) -> str:
        """Return why the graph of a version is not the one that a build would publish now; empty if it is.

        Raises:
            RepogenError: The repository cannot be used.
        """
        options = replace(self._options(repository), dry_run=True)
        plan = pipeline.plan_build(self.spec, options, writes=False)
        if reasons := export_reasons(self.spec.models[self.name], plan.reasons.get(self.name, ())):
            return "; ".join(reasons)
        newest = latest_version(model_dir(repository, self.name))
        return "" if newest == version else f"version {newest} is newer"

    def build(self, passes: tuple[PassSpec, ...], repository: Path, progress: Progress) -> ModelReport:
        """Build the model with these passes into a new repository, without a smoke test.

        Raises:
            RepogenError: No model can be built here.
        """
        model = self.spec.models[self.name].model_copy(update={"optimize": passes})
        spec = replace(self.spec, models={self.name: model})
        return pipeline.build(spec, self._options(repository), progress).models[0]

    def _options(self, repository: Path) -> BuildOptions:
        return BuildOptions(
            models=(self.name,),
            repository=repository,
            server=None,
            track=False,
            tracking_uri=self.tracking_uri,
            report=False,
        )
