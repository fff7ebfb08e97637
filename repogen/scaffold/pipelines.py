"""The pipelines of ``repogen init``: one task per part of the models, for GitHub Actions, Argo and Kubeflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

ARGO = "repogen-argo.yaml"
KFP = "repogen_pipeline.py"


@dataclass(frozen=True)
class Pipelines:
    """Which pipelines to write.

    Attributes:
        matrix: Whether the GitHub workflow builds the parts in a matrix.
        argo: Whether to write an Argo workflow.
        kfp: Whether to write a Kubeflow pipeline.
        shards: Number of parts.
    """

    matrix: bool = False
    argo: bool = False
    kfp: bool = False
    shards: int = 4

    @property
    def requested(self) -> bool:
        """Whether any file is written next to the spec."""
        return self.argo or self.kfp


NO_PIPELINES = Pipelines()


def matrix_workflow(environment: Environment, pipelines: Pipelines, spec: str, action: str) -> str:
    """Return the GitHub workflow with one job per part.

    Args:
        environment: Jinja's, for the folder of the templates.
        pipelines: The number of parts.
        spec: Path of the spec, relative to the git repository.
        action: GitHub repository of repogen.
    """
    numbers = list(range(1, pipelines.shards + 1))
    values = {"spec": spec, "numbers": numbers, "shards": pipelines.shards, "action": action, "ref": f"v{__version__}"}
    return environment.get_template("github.yml.j2").render(values)


def pipeline_texts(environment: Environment, pipelines: Pipelines, spec: str) -> dict[str, str]:
    """Return the text of each file that is written next to the spec, by its name.

    Args:
        environment: Jinja's, for the folder of the templates.
        pipelines: What to write.
        spec: Name of the spec.
    """
    templates = {ARGO: ("argo.yaml.j2", pipelines.argo), KFP: ("kfp.py.j2", pipelines.kfp)}
    values = {"spec": spec, "shards": pipelines.shards, "version": __version__}
    return {
        name: environment.get_template(template).render(values)
        for name, (template, requested) in templates.items()
        if requested
    }
