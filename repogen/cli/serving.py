"""``repogen smoke``, ``repogen serve`` and ``repogen server``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from repogen.api import smoke as api
from repogen.cli.group import (
    DIRECTORY,
    SERVER,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
)
from repogen.errors import ExitCode, SpecError
from repogen.reporting.github import write_smoke
from repogen.reporting.json import smoke_document
from repogen.reporting.output import write_text
from repogen.reporting.progress import PlainProgress, progress_view
from repogen.reporting.text import smoke_text
from repogen.serving import commands
from repogen.targets import DEFAULT_RELEASE

_REPOSITORY = Path("model_repository")


@click.command()
@click.argument("directory", type=DIRECTORY, default=_REPOSITORY)
@click.option("models", "--model", multiple=True, metavar="NAME", help="Test only this model; repeatable.")
@click.option("--server", default="embedded", show_default=True, help=f"Triton to test on: {SERVER}.")
@control_header_option
@json_option
@debug_option
def smoke(*, directory: Path, models: tuple[str, ...], server: str, as_json: bool, debug: bool) -> None:
    """Test a published repository on a real Triton server.

    Tests every served version in DIRECTORY (default: model_repository) over gRPC, against its golden tensors.
    """
    with handle_errors(debug=debug, as_json=as_json):
        with progress_view(quiet=as_json) as progress:
            reports = api.smoke(directory, models=models, server=server, progress=progress)
        if not reports:
            raise SpecError(f"{directory} has no models", "build some with `repogen build`", code="repository.empty")
        print_report(lambda: smoke_text(reports), lambda: smoke_document(str(directory), reports), as_json=as_json)
        write_smoke(directory, reports, err=as_json)
        sys.exit(int(ExitCode.OK if all(report.passed for report in reports) else ExitCode.SMOKE))


@click.command()
@click.argument("directory", type=DIRECTORY, default=_REPOSITORY)
@click.option(
    "--server",
    type=click.Choice(["embedded", "docker"]),
    default="embedded",
    show_default=True,
    help="The embedded Triton, or NVIDIA's container.",
)
@control_header_option
@click.option("--poll", is_flag=True, help="Load and unload models as the repository changes.")
@debug_option
def serve(*, directory: Path, server: str, poll: bool, debug: bool) -> None:
    """Run a Triton server on a repository until Ctrl-C.

    Serves DIRECTORY (default: model_repository) on free ports of 127.0.0.1.
    """
    progress = PlainProgress()
    with handle_errors(debug=debug), commands.serve(directory, server, poll=poll, progress=progress) as triton:
        ends = triton.endpoint
        write_text(f"Triton {ends.server_version} ({ends.kind}, {ends.runtime}) serves {directory}")
        write_text(f"gRPC {ends.grpc}\nHTTP {ends.http}\nmetrics {ends.metrics}\npress Ctrl-C to stop")
        commands.wait(triton, progress)


@click.group("server")
def server() -> None:
    """Install or locate the embedded Triton server.

    The embedded server is the real tritonserver, in a private environment.
    """


@server.command("install")
@click.option(
    "wheels", "--from", type=DIRECTORY, metavar="DIR", help="Install the wheels in this directory, without a network."
)
@click.option(
    "--target",
    default=DEFAULT_RELEASE,
    show_default=True,
    metavar="RELEASE",
    help="Install this release's ONNX Runtime.",
)
@debug_option
def server_install(*, wheels: Path | None, target: str, debug: bool) -> None:
    """Install the server now; otherwise, the first build installs it."""
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
