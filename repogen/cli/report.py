"""``repogen report`` and ``repogen view``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from repogen.api import report as api
from repogen.cli.completion import repository_models
from repogen.cli.group import (
    DIRECTORY,
    FILE,
    REPOSITORY,
    Integer,
    debug_option,
    handle_errors,
    json_option,
    print_report,
)
from repogen.cli.repository import model_and_version
from repogen.cli.spec_option import DEFAULT_REPOSITORY, repository_argument
from repogen.reporting.json import as_dict
from repogen.reporting.output import write_text
from repogen.reporting.results import REPORTS
from repogen.stores.open import run
from repogen.stores.selection import served
from repogen.stores.selection import version as version_of

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("directory", type=REPOSITORY, default=DEFAULT_REPOSITORY, metavar="[DIRECTORY|URL]")
@click.option(
    "--output", type=FILE, metavar="FILE",
    help="HTML file to write; default: a file in --results with the name of the repository.",
)  # fmt: skip
@click.option(
    "--results",
    type=DIRECTORY,
    metavar="DIR",
    default=REPORTS,
    show_default=True,
    help="Directory with the results of build, bench and tune.",
)
@json_option
@debug_option
def report(*, directory: Path, output: Path | None, results: Path, as_json: bool, debug: bool) -> None:
    """Write a report of a repository as one HTML file.

    Shows the versions of DIRECTORY (default: model_repository), what changed between them, config.pbtxt with the reason
    for each value, and provenance. If --results has results of the models, also shows parity, operators, latency and
    throughput. Reads manifests and config.pbtxt, and does not load a model.
    """
    with handle_errors(debug=debug, as_json=as_json):
        rendered = api.report(repository_argument(directory, str(DEFAULT_REPOSITORY)), output=output, results=results)
        lines = [*(f"note: {note}" for note in rendered.notes), f"report: {rendered.path}"]
        print_report(lambda: "\n".join(lines), lambda: as_dict(rendered), as_json=as_json)


@click.command()
@click.argument("model", metavar="NAME[@VERSION]", shell_complete=repository_models)
@click.option(
    "--repository",
    type=REPOSITORY,
    default=DEFAULT_REPOSITORY,
    show_default=True,
    metavar="DIR|URL",
    help="Model repository.",
)
@click.option(
    "--port", type=Integer(0, 65535), default=0, metavar="PORT", help="Port to listen on; default: a free one."
)
@click.option("--no-browser", is_flag=True, help="Print the URL only; do not open a browser.")
@debug_option
def view(*, model: str, repository: Path, port: int, no_browser: bool, debug: bool) -> None:
    """Show the published graph of a model in Netron until Ctrl-C.

    Without @VERSION, shows the newest version that Triton serves. Listens on 127.0.0.1. Needs the extra `view`.
    """
    with handle_errors(debug=debug):
        name, version = model_and_version(model)
        run(
            repository,
            lambda path: _view(path, name, version, port, browser=not no_browser),
            fetch=lambda path: served(path, (name,)) if version is None else version_of(path, name, version),
        )


def _view(repository: Path, name: str, version: int | None, port: int, *, browser: bool) -> None:
    from repogen.versions.view import graph_of, open_viewer  # noqa: PLC0415 - not for `repogen report`

    graph = graph_of(repository, name, version)
    with open_viewer(graph, port) as viewer:
        write_text(f"{graph.title}: {viewer.url}\npress Ctrl-C to stop")
        if browser:
            click.launch(viewer.url)
        with suppress(KeyboardInterrupt):
            viewer.serve()
