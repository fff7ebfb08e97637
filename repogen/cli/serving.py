"""A repository on a real Triton: ``smoke``, ``serve`` and ``server``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from repogen.cli.group import DIRECTORY, SERVER, debug_option, errors, json_option, main
from repogen.errors import ExitCode, SpecError


@main.command()
@click.argument("directory", type=DIRECTORY, default=Path("model_repository"))
@click.option("models", "--model", multiple=True, metavar="NAME", help="Test only this model; may be repeated.")
@click.option("--server", default="embedded", show_default=True, help=f"Triton to ask: {SERVER}.")
@json_option
@debug_option
def smoke(*, directory: Path, models: tuple[str, ...], server: str, as_json: bool, debug: bool) -> None:
    """Prove a repository built by repogen (default: model_repository) on a real Triton, through gRPC."""
    with errors(debug=debug, as_json=as_json):
        from repogen.reporting.github import guarded, tell_smoke  # noqa: PLC0415 - the same
        from repogen.reporting.json_document import smoke_json  # noqa: PLC0415 - the same
        from repogen.reporting.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.reporting.text import smoke_text  # noqa: PLC0415 - the same
        from repogen.smoke.repository import smoke as smoke_repository  # noqa: PLC0415 - imports gRPC

        with progress_view(quiet=as_json) as progress:
            reports = smoke_repository(directory, models, server, progress)
        if not reports:
            raise SpecError(f"{directory} holds no models", "build some with `repogen build`", code="repository.empty")
        click.echo(smoke_json(str(directory), reports) if as_json else guarded(smoke_text(reports)))
        tell_smoke(directory, reports, err=as_json)
        sys.exit(int(ExitCode.OK if all(report.passed for report in reports) else ExitCode.SMOKE))


@main.command()
@click.argument("directory", type=DIRECTORY, default=Path("model_repository"))
@click.option("--server", type=click.Choice(["embedded", "docker"]), default="embedded", show_default=True)
@click.option("--poll", is_flag=True, help="Follow changes of the repository.")
@debug_option
def serve(*, directory: Path, server: str, poll: bool, debug: bool) -> None:
    """Run a Triton on a repository (default: model_repository) until Ctrl-C."""
    with errors(debug=debug):
        from repogen.reporting.progress import PlainProgress  # noqa: PLC0415 - the same
        from repogen.serving import commands  # noqa: PLC0415 - see the package's text

        with commands.serve(directory, server, poll=poll, progress=PlainProgress()) as triton:
            ends = triton.endpoint
            click.echo(f"Triton {ends.server_version} ({ends.kind}, {ends.runtime}) serves {directory}")
            click.echo(f"gRPC {ends.grpc}\nHTTP {ends.http}\nmetrics {ends.metrics}\npress Ctrl-C to stop")
            commands.wait(triton)


@main.group("server")
def server_group() -> None:
    """The embedded Triton: the real tritonserver in a private environment."""


@server_group.command("install")
@click.option("wheels", "--from", type=DIRECTORY, metavar="DIR", help="Take wheels from here, not from the network.")
@debug_option
def server_install(*, wheels: Path | None, debug: bool) -> None:
    """Install it now, not on first use."""
    with errors(debug=debug):
        from repogen.reporting.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.serving import commands  # noqa: PLC0415 - see the package's text

        with progress_view(quiet=False) as progress:
            path = commands.install_server(wheels, progress)
        click.echo(f"installed in {path}")


@server_group.command("path")
@debug_option
def server_path(*, debug: bool) -> None:
    """Print where it is."""
    with errors(debug=debug):
        from repogen.serving import commands  # noqa: PLC0415 - see the package's text

        click.echo(str(commands.server_path()))


@server_group.command("version")
@debug_option
def server_version(*, debug: bool) -> None:
    """Print the versions of Triton and ONNX Runtime that it runs."""
    with errors(debug=debug):
        from repogen.serving import commands  # noqa: PLC0415 - see the package's text

        click.echo(commands.server_version())
