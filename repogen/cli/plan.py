"""``repogen plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from repogen.api import plan as api
from repogen.cli.completion import releases, spec_models
from repogen.cli.group import (
    FILE,
    REPOSITORY,
    Integer,
    debug_option,
    handle_errors,
    json_option,
    print_report,
    tracking_option,
)
from repogen.cli.spec_option import spec_or_default
from repogen.reporting.json import as_dict
from repogen.reporting.plan_text import plan_text
from repogen.reporting.progress import progress_view
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("spec", type=FILE, required=False)
@click.option(
    "models", "--model", multiple=True, metavar="NAME", shell_complete=spec_models,
    help="Plan only this model; repeatable.",
)  # fmt: skip
@click.option(
    "--repository", type=REPOSITORY, metavar="DIR|URL", help="Compare with this repository instead of the spec's."
)
@click.option(
    "--target", metavar="RELEASE", shell_complete=releases, help="Plan for this Triton release, such as 24.10."
)
@click.option("--force", is_flag=True, help="Plan to build all models, including those that are up to date.")
@click.option("--no-track", is_flag=True, help="Plan a build without MLflow tracking.")
@tracking_option
@click.option(
    "--shards", type=Integer(1, 1000), metavar="N",
    help="Show which of N shards builds each model if this plan is passed to `repogen build --plan`.",
)  # fmt: skip
@json_option
@debug_option
def plan(  # noqa: PLR0913 - one parameter per option
    *,
    spec: Path | None,
    models: tuple[str, ...],
    repository: Path | None,
    target: str | None,
    force: bool,
    no_track: bool,
    tracking_uri: str | None,
    shards: int | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Show what `repogen build` would do, and why.

    For each model of SPEC (default: repogen.yaml): whether it is up to date, what changed, the models that it uses, and
    the time and memory that a build needs. A model is rejected if the state of the repository does not allow publishing
    any version of it, for example an ensemble with a step that is held. Writes nothing, and imports neither torch nor a
    model.
    """
    with handle_errors(debug=debug, as_json=as_json):
        loaded_spec = load_spec(spec_or_default(spec), target)
        with progress_view(quiet=as_json) as progress:
            report = api.plan(
                loaded_spec,
                models=models,
                repository=repository,
                force=force,
                track=not no_track,
                tracking_uri=tracking_uri,
                shards=shards,
                progress=progress,
            )
        print_report(lambda: plan_text(report), lambda: as_dict(report), as_json=as_json)
