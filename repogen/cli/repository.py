"""``repogen versions`` and ``repogen verify``: commands on the versions of a repository."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from repogen.api import repository as api
from repogen.cli.group import DIRECTORY, FILE, debug_option, handle_errors, json_option, print_report, tracking_option
from repogen.cli.spec_option import load_optional_spec
from repogen.errors import ExitCode
from repogen.reporting.json import as_dict
from repogen.reporting.repository_text import verify_text, versions_text

_REPOSITORY = Path("model_repository")
_repository_option = click.option(
    "--repository", type=DIRECTORY, default=_REPOSITORY, show_default=True, metavar="DIR", help="Model repository."
)
_spec_option = click.option(
    "--spec", type=FILE, help="Spec that sets the MLflow server; default: repogen.yaml, if it exists."
)


@click.command()
@click.argument("name", required=False)
@_repository_option
@_spec_option
@tracking_option
@json_option
@debug_option
def versions(
    *, name: str | None, repository: Path, spec: Path | None, tracking_uri: str | None, as_json: bool, debug: bool
) -> None:
    """List the versions of a repository, and which are served.

    Lists the versions of NAME, or of all models. Works on any repository. If an MLflow server is configured, it is
    asked for the numbers and aliases of versions that were registered.
    """
    with handle_errors(debug=debug, as_json=as_json):
        report = api.versions(name, repository=repository, spec=load_optional_spec(spec), tracking_uri=tracking_uri)
        print_report(lambda: versions_text(report), lambda: as_dict(report), as_json=as_json)


@click.command()
@click.argument("directory", type=DIRECTORY, default=_REPOSITORY)
@click.option("models", "--model", multiple=True, metavar="NAME", help="Verify only this model; repeatable.")
@json_option
@debug_option
def verify(*, directory: Path, models: tuple[str, ...], as_json: bool, debug: bool) -> None:
    """Compare every file of a repository with the manifests.

    Hashes every file in DIRECTORY (default: model_repository). Reports files that differ from the manifest of their
    version, files that the manifest does not list, missing files, and a config.pbtxt that was edited. Exits with code 1
    if there are findings.
    """
    with handle_errors(debug=debug, as_json=as_json):
        report = api.verify(directory, models=models)
        print_report(lambda: verify_text(report), lambda: as_dict(report), as_json=as_json)
        sys.exit(int(ExitCode.GATE if report.findings else ExitCode.OK))
