"""What every command stands in: the group, shared options, and errors told in the right words with the right code."""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from repogen.errors import InterruptedBuildError, RepogenError
from repogen.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
SERVER = "embedded, docker, or HOST:PORT of one that runs"

json_option = click.option("as_json", "--json", is_flag=True, help="Print one JSON document on stdout.")
tracking_option = click.option(
    "--tracking-uri", metavar="URI", help="MLflow server, instead of MLFLOW_TRACKING_URI and the spec's."
)
debug_option = click.option("--debug", is_flag=True, help="Show tracebacks and logs.")


@contextmanager
def errors(*, debug: bool, as_json: bool = False) -> Iterator[None]:
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
    from repogen.reporting.github import guarded, tell_error  # noqa: PLC0415 - the same
    from repogen.reporting.json_document import error_json  # noqa: PLC0415 - not for --help
    from repogen.reporting.text import error_text  # noqa: PLC0415 - the same

    click.echo(guarded(error_text(error.record, debug=debug)), err=True)
    tell_error(error, click.get_current_context().info_name or "repogen")
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
