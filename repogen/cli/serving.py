"""``repogen smoke``, ``repogen serve`` and ``repogen server``."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from repogen.api import smoke as api
from repogen.api.check import check
from repogen.cli.completion import releases, repository_models, server_names
from repogen.cli.deploy import Connection, connection_options
from repogen.cli.group import (
    REPOSITORY,
    SERVER,
    Integer,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
)
from repogen.cli.spec_option import repository_or_default
from repogen.errors import ExitCode, RepogenError, SpecError
from repogen.files.url import is_url
from repogen.reporting.github import write_smoke
from repogen.reporting.json import smoke_document
from repogen.reporting.output import write_text
from repogen.reporting.progress import PlainProgress, progress_view
from repogen.reporting.text import serve_text, smoke_text
from repogen.serving import commands
from repogen.stores.open import run
from repogen.stores.selection import served
from repogen.targets import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.serving.served_models import ServedModel

_PORT = Integer(0, 65535)


@click.command()
@click.argument("directory", type=REPOSITORY, required=False, metavar="[DIRECTORY|URL]")
@click.option(
    "models", "--model", multiple=True, metavar="NAME", shell_complete=repository_models,
    help="Test only this model; repeatable.",
)  # fmt: skip
@click.option(
    "--server", default="embedded", show_default=True, shell_complete=server_names,
    help=f"Triton server to test on: {SERVER}.",
)  # fmt: skip
@connection_options
@control_header_option
@json_option
@debug_option
def smoke(
    *, directory: Path | None, models: tuple[str, ...], server: str, connection: Connection, as_json: bool, debug: bool
) -> None:
    """Test a published repository on a real Triton server.

    Tests every served version in DIRECTORY (default: model_repository) over gRPC and HTTP: its responses must equal the
    outputs that the build recorded, within tolerance.
    """
    with handle_errors(debug=debug, as_json=as_json):
        repository = repository_or_default(directory)
        with progress_view(quiet=as_json) as progress:
            credentials = connection.credentials()
            reports = api.smoke(repository, models=models, server=server, credentials=credentials, progress=progress)
        print_report(lambda: smoke_text(reports), lambda: smoke_document(str(repository), reports), as_json=as_json)
        write_smoke(repository, reports, err=as_json)
        sys.exit(int(ExitCode.OK if all(report.passed for report in reports) else ExitCode.SMOKE))


@click.command()
@click.argument("directory", type=REPOSITORY, required=False, metavar="[DIRECTORY|URL]")
@click.option(
    "models", "--model", multiple=True, metavar="NAME", shell_complete=repository_models,
    help="Serve only this model (embedded server only); repeatable.",
)  # fmt: skip
@click.option(
    "--server", default="embedded", show_default=True, shell_complete=server_names,
    help="Triton server to run: embedded, docker, or the name of a plug-in server.",
)  # fmt: skip
@click.option("--http-port", type=_PORT, metavar="PORT", help="Port for HTTP; default: 8000 if it is free.")
@click.option("--grpc-port", type=_PORT, metavar="PORT", help="Port for gRPC; default: 8001 if it is free.")
@click.option("--metrics-port", type=_PORT, metavar="PORT", help="Port for metrics; default: 8002 if it is free.")
@control_header_option
@click.option("--poll", is_flag=True, help="Load and unload models as the repository changes.")
@debug_option
def serve(  # noqa: PLR0913 - one parameter per option
    *,
    directory: Path | None,
    models: tuple[str, ...],
    server: str,
    http_port: int | None,
    grpc_port: int | None,
    metrics_port: int | None,
    poll: bool,
    debug: bool,
) -> None:
    """Run a Triton server on a repository until Ctrl-C.

    Serves DIRECTORY (default: model_repository) on 127.0.0.1, and prints an example request for each model. A
    repository at a URL is downloaded first.
    """
    progress = PlainProgress()
    with handle_errors(debug=debug):
        repository = repository_or_default(directory)
        if poll and is_url(repository):
            raise SpecError(
                f"{repository} is served from a copy, which does not change, so --poll has no effect",
                "serve it without --poll, or pass a directory",
                code="server.poll",
            )
        kind = commands.with_ports(server, {"http": http_port, "grpc": grpc_port, "metrics": metrics_port})

        def serve_copy(path: Path) -> None:
            with commands.serve(path, kind, models=models, poll=poll, progress=progress) as triton:
                ends = triton.endpoint
                states = commands.states(triton, path, models)
                write_text(f"{ends.description} serves {repository}", wrap=True)
                write_text(serve_text(ends, states))
                _explain_failures(path, states)
                if debug and not all(model.versions for model in states):
                    write_text(triton.log_tail(commands.LOG_LINES), err=True)
                write_text("press Ctrl-C to stop")
                commands.wait(triton, progress)

        run(repository, serve_copy, fetch=lambda path: served(path, models), progress=progress)
        write_text("stopped")


def _explain_failures(directory: Path, served: Sequence[ServedModel]) -> None:
    """Print the error that ``repogen check`` finds in each model that is not served."""
    for model in served:
        if not model.versions:
            with suppress(RepogenError):
                errors = [finding for finding in check(directory / model.name) if finding.severity == "error"]
                write_text("".join(f"{model.name}: {each.code} {each.message}\n" for each in errors[:1]).rstrip())


@click.group("server")
def server() -> None:
    """Install or locate the embedded Triton server.

    The embedded server is the real tritonserver, in a private environment.
    """


@server.command("install")
@click.option(
    "wheels", "--from", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    help="Install the wheels in this directory, without a network.",
)  # fmt: skip
@click.option(
    "--target",
    default=DEFAULT_RELEASE,
    show_default=True,
    metavar="RELEASE",
    shell_complete=releases,
    help="Install this release's ONNX Runtime.",
)
@debug_option
def server_install(*, wheels: Path | None, target: str, debug: bool) -> None:
    """Install the server now; otherwise, it is installed on first use."""
    with handle_errors(debug=debug):
        with progress_view(quiet=False) as progress:
            path = commands.install_server(wheels, progress, target)
        write_text(f"installed in {path}")


@server.command("path")
@debug_option
def server_path(*, debug: bool) -> None:
    """Print the directory of the installation."""
    with handle_errors(debug=debug):
        write_text(str(commands.server_path()))


@server.command("version")
@debug_option
def server_version(*, debug: bool) -> None:
    """Print the versions of Triton and ONNX Runtime in the server."""
    with handle_errors(debug=debug):
        write_text(commands.server_version())
