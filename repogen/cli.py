"""Commands: flags -> Spec -> pipeline -> exit code. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from repogen import __version__
from repogen.errors import ExitCode, InterruptedBuildError, RepogenError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)
_SERVER = "embedded, docker, or HOST:PORT of one that runs"

json_option = click.option("as_json", "--json", is_flag=True, help="Print one JSON document on stdout.")
debug_option = click.option("--debug", is_flag=True, help="Show tracebacks and logs.")


@contextmanager
def _errors(*, debug: bool, as_json: bool = False) -> Iterator[None]:
    """Turn errors into text or JSON and the right exit code."""
    try:
        yield
    except RepogenError as error:
        _end(error, debug=debug, as_json=as_json)
    except KeyboardInterrupt:
        _end(InterruptedBuildError("interrupted; nothing half-done was left"), debug=debug, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last place where a bug can be told politely
        told = RepogenError(
            f"unexpected {type(error).__name__}: {error}",
            "report this, with what --debug prints",
            details=traceback.format_exc(),
        )
        _end(told, debug=debug, as_json=as_json)


def _end(error: RepogenError, *, debug: bool, as_json: bool) -> NoReturn:
    """Say what went wrong and exit with its code."""
    from repogen.console.document import error_json  # noqa: PLC0415 - not for --help
    from repogen.console.text import error_text  # noqa: PLC0415 - the same

    click.echo(error_text(error.record, debug=debug), err=True)
    if as_json:
        click.echo(error_json(error))
    sys.exit(int(error.exit_code))


def _terminate(_signum: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="repogen")
def main() -> None:
    """Take trained PyTorch models to a verified, versioned Triton model repository."""
    signal.signal(signal.SIGTERM, _terminate)


@main.command()
@click.argument("directory", type=_DIRECTORY, default=Path())
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@debug_option
def init(directory: Path, *, force: bool, debug: bool) -> None:
    """Write a commented, working repogen.yaml with a tiny model to DIRECTORY."""
    with _errors(debug=debug):
        from repogen.scaffold import scaffold  # noqa: PLC0415 - see the module's text

        for path in scaffold(directory, force=force):
            click.echo(f"wrote {path}")
        target = "" if directory == Path() else f" {directory / 'repogen.yaml'}"
        click.echo(f"next: repogen build{target}")


@main.command()
@click.argument("spec", type=_FILE, default=Path("repogen.yaml"))
@click.option("models", "--model", multiple=True, metavar="NAME", help="Build only this model; may be repeated.")
@click.option("--repository", type=_DIRECTORY, metavar="DIR", help="Publish here instead of the spec's repository.")
@click.option("--server", default="embedded", show_default=True, help=f"Triton for the smoke test: {_SERVER}.")
@click.option("--no-smoke", is_flag=True, help="Publish without asking a real Triton.")
@click.option("--force", is_flag=True, help="Build and publish even what is unchanged.")
@click.option("--breaking", is_flag=True, help="Allow inputs and outputs that differ from the published version's.")
@click.option("--dry-run", is_flag=True, help="Do everything but track and publish.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Models built at a time.")
@click.option("--stage-dir", type=_DIRECTORY, metavar="DIR", help="Stage here instead of beside the repository.")
@json_option
@debug_option
def build(  # noqa: PLR0913 - one parameter a flag
    *,
    spec: Path,
    models: tuple[str, ...],
    repository: Path | None,
    server: str,
    no_smoke: bool,
    force: bool,
    breaking: bool,
    dry_run: bool,
    jobs: int,
    stage_dir: Path | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Export, verify, smoke-test and publish the models of SPEC (default: repogen.yaml)."""
    with _errors(debug=debug, as_json=as_json):
        from repogen.console.document import build_json  # noqa: PLC0415 - see the module's text
        from repogen.console.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.console.text import build_text  # noqa: PLC0415 - the same
        from repogen.pipeline import BuildOptions, build  # noqa: PLC0415 - the same
        from repogen.spec import load_spec  # noqa: PLC0415 - the same

        options = BuildOptions(
            models=models,
            repository=repository,
            server=None if no_smoke else server,
            force=force,
            dry_run=dry_run,
            breaking=breaking,
            jobs=jobs,
            stage_dir=stage_dir,
        )
        loaded = load_spec(spec)
        with progress_view(quiet=as_json) as progress:
            report = build(loaded, options, progress)
        click.echo(build_json(report) if as_json else build_text(report, debug=debug))
        sys.exit(report.exit_code)


@main.command()
@click.argument("directory", type=_DIRECTORY, default=Path("model_repository"))
@click.option("models", "--model", multiple=True, metavar="NAME", help="Test only this model; may be repeated.")
@click.option("--server", default="embedded", show_default=True, help=f"Triton to ask: {_SERVER}.")
@json_option
@debug_option
def smoke(*, directory: Path, models: tuple[str, ...], server: str, as_json: bool, debug: bool) -> None:
    """Prove a repository built by repogen (default: model_repository) on a real Triton, through gRPC."""
    with _errors(debug=debug, as_json=as_json):
        from repogen import live  # noqa: PLC0415 - see the module's text
        from repogen.console.document import smoke_json  # noqa: PLC0415 - the same
        from repogen.console.progress import progress_view  # noqa: PLC0415 - the same
        from repogen.console.text import smoke_text  # noqa: PLC0415 - the same

        with progress_view(quiet=as_json) as progress:
            reports = live.smoke(directory, models, server, progress)
        if not reports:
            raise SpecError(f"{directory} holds no models", "build some with `repogen build`", code="repository.empty")
        click.echo(smoke_json(str(directory), reports) if as_json else smoke_text(reports))
        sys.exit(int(ExitCode.OK if all(report.passed for report in reports) else ExitCode.SMOKE))


@main.command()
@click.argument("directory", type=_DIRECTORY, default=Path("model_repository"))
@click.option("--server", type=click.Choice(["embedded", "docker"]), default="embedded", show_default=True)
@click.option("--poll", is_flag=True, help="Follow changes of the repository.")
@debug_option
def serve(*, directory: Path, server: str, poll: bool, debug: bool) -> None:
    """Run a Triton on a repository (default: model_repository) until Ctrl-C."""
    with _errors(debug=debug):
        from repogen import live  # noqa: PLC0415 - see the module's text
        from repogen.console.progress import PlainProgress  # noqa: PLC0415 - the same

        with live.serve(directory, server, poll=poll, progress=PlainProgress()) as triton:
            ends = triton.endpoint
            click.echo(f"Triton {ends.server_version} ({ends.kind}, {ends.runtime}) serves {directory}")
            click.echo(f"gRPC {ends.grpc}\nHTTP {ends.http}\nmetrics {ends.metrics}\npress Ctrl-C to stop")
            live.wait(triton)


@main.group("server")
def server_group() -> None:
    """The embedded Triton: the real tritonserver in a private environment."""


@server_group.command("install")
@click.option("wheels", "--from", type=_DIRECTORY, metavar="DIR", help="Take wheels from here, not from the network.")
@debug_option
def server_install(*, wheels: Path | None, debug: bool) -> None:
    """Install it now, not on first use."""
    with _errors(debug=debug):
        from repogen import live  # noqa: PLC0415 - see the module's text
        from repogen.console.progress import progress_view  # noqa: PLC0415 - the same

        with progress_view(quiet=False) as progress:
            path = live.install_server(wheels, progress)
        click.echo(f"installed in {path}")


@server_group.command("path")
@debug_option
def server_path(*, debug: bool) -> None:
    """Print where it is."""
    with _errors(debug=debug):
        from repogen import live  # noqa: PLC0415 - see the module's text

        click.echo(str(live.server_path()))


@server_group.command("version")
@debug_option
def server_version(*, debug: bool) -> None:
    """Print the versions of Triton and ONNX Runtime that it runs."""
    with _errors(debug=debug):
        from repogen import live  # noqa: PLC0415 - see the module's text

        click.echo(live.server_version())


@main.command()
@json_option
@debug_option
def doctor(*, as_json: bool, debug: bool) -> None:
    """Say what is installed, what is missing, and the command that mends it."""
    with _errors(debug=debug, as_json=as_json):
        from repogen.console.diagnosis import diagnosis_json, diagnosis_text  # noqa: PLC0415 - see the module's text
        from repogen.doctor import diagnose  # noqa: PLC0415 - the same

        findings = diagnose()
        click.echo(diagnosis_json(findings) if as_json else diagnosis_text(findings))
        sys.exit(int(ExitCode.OK if all(finding.ok for finding in findings) else ExitCode.GATE))


@main.command()
def schema() -> None:
    """Print the JSON Schema of the spec; editors complete from it."""
    import json  # noqa: PLC0415 - see the module's text

    from repogen.spec import json_schema  # noqa: PLC0415 - the same

    click.echo(json.dumps(json_schema(), indent=2))
