"""``repogen init``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from repogen.cli.group import DIRECTORY, Integer, debug_option, handle_errors
from repogen.reporting.output import write_text
from repogen.scaffold.describe import describe, require_local, require_model_name
from repogen.scaffold.description import NO_HINTS, Hints
from repogen.scaffold.files import ACTION, IGNORED, SPEC, can_track, describe_ensemble, scaffold, scaffold_from
from repogen.scaffold.pipelines import Pipelines
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.scaffold.description import SpecDescription


@click.command()
@click.argument("directory", type=DIRECTORY, default=Path())
@click.option(
    "source",
    "--from",
    metavar="PATH",
    help="Write a spec for an existing model file, model directory, Triton repository, or file.py:callable.",
)
@click.option("--weights", metavar="FILE", help="With --from file.py:callable: weights to load into the model.")
@click.option("--examples", metavar="FILE", help="With --from: example inputs, a .npz file or file.py:callable.")
@click.option("--name", help="With --from: the model's name in Triton.")
@click.option(
    "--ensemble",
    is_flag=True,
    help="With --from a Hugging Face text model: write an ensemble that maps each text to a label or a vector.",
)
@click.option(
    "--github", is_flag=True, help="Also write a GitHub Actions workflow; if a spec exists, write only the workflow."
)
@click.option(
    "--kubernetes",
    is_flag=True,
    help="Also write Kubernetes and KServe manifests; if a spec exists, write only the manifests.",
)
@click.option("--matrix", is_flag=True, help="With --github: build the models in parts, one job per part.")
@click.option("--argo", is_flag=True, help="Also write an Argo workflow; if a spec exists, write only the workflow.")
@click.option("--kfp", is_flag=True, help="Also write a Kubeflow pipeline; if a spec exists, write only the pipeline.")
@click.option(
    "--shards", type=Integer(1, 256), default=4, show_default=True, metavar="N",
    help="Number of parts of --matrix, --argo and --kfp.",
)  # fmt: skip
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite existing files, but not code that was edited: if there is such code, write nothing.",
)
@debug_option
def init(  # noqa: PLR0913 - one parameter per option
    directory: Path,
    *,
    source: str | None,
    weights: str | None,
    examples: str | None,
    name: str | None,
    ensemble: bool,
    github: bool,
    kubernetes: bool,
    matrix: bool,
    argo: bool,
    kfp: bool,
    shards: int,
    force: bool,
    debug: bool,
) -> None:
    """Write a commented, working repogen.yaml.

    Writes the spec to DIRECTORY (default: the current one). With --from, the spec describes the given model. Without
    --from, it describes a tiny example model, whose code is also written.
    """
    if matrix and not github:
        raise click.UsageError("--matrix requires --github")
    pipelines = Pipelines(matrix, argo, kfp, shards)
    with handle_errors(debug=debug):
        spec = _description(source, directory, Hints(weights, examples, name), ensemble=ensemble)
        files = () if spec is None else scaffold_from(spec, directory, force=force)
        if spec is None or github or kubernetes or pipelines.requested:
            files += scaffold(directory, force=force, github=github, kubernetes=kubernetes, pipelines=pipelines)
        for path in files:
            write_text(f"{'added outputs of builds to' if path.name == IGNORED else 'wrote'} {path}")
        for line in () if spec is None else _remarks(spec):
            write_text(line, wrap=True)
        if can_track() and any(path.name == SPEC for path in files):
            write_text(
                "builds are tracked in mlflow.db next to repogen.yaml; remove `mlflow: {}` to turn that off", wrap=True
            )
        argument = "" if directory == Path() else f" {directory / 'repogen.yaml'}"
        first = f"{spec.missing}, then " if spec is not None and spec.missing else ""
        adopt = "" if spec is None else "".join(f" --adopt {name}" for name in spec.adopt)
        write_text(f"next: {first}repogen build{argument}{adopt}")
        for line in _github_steps(matrix=matrix) if github else ():
            write_text(line, wrap=True)


def _description(source: str | None, directory: Path, hints: Hints, *, ensemble: bool) -> SpecDescription | None:
    """Return the spec for ``--from``; None without it."""
    if source is None:
        if ensemble or hints != NO_HINTS:
            raise click.UsageError("--weights, --examples, --name and --ensemble require --from")
        return None
    require_local(source)
    if hints.name is not None:
        require_model_name(hints.name)
    return describe_ensemble(source, directory, hints.name) if ensemble else describe(source, directory, hints)


def _github_steps(*, matrix: bool) -> Iterator[str]:
    """Yield what the GitHub workflow needs before it runs."""
    settings = (
        "the variable MODEL_REPOSITORY, to publish to a store"
        if matrix
        else "the variable MLFLOW_TRACKING_URI and its secrets, and reviewers of the environment production"
    )
    yield f"on GitHub: commit the files; in the settings, add {settings}"
    alternative = (
        "replace it with the SHA of a commit"
        if matrix
        else "install repogen and run `repogen build` in a step of your own workflow"
    )
    yield f"the workflow needs the tag v{__version__} of {ACTION}; until it exists, {alternative}"


def _remarks(spec: SpecDescription) -> Iterator[str]:
    """Yield what the user should look at."""
    for model in spec.models:
        yield from (f"{model.name}: {line}" for line in model.comments if line.startswith("CHECK"))
    yield from (f"not in the spec: {line}" for line in spec.omitted)
