"""``repogen deploy``, and the options of commands that deploy."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from repogen.api import deploy as api
from repogen.artifacts.serving import Credentials
from repogen.cli.group import (
    FILE,
    REPOSITORY,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
)
from repogen.errors import SpecError
from repogen.reporting.deploy_text import deploy_text
from repogen.reporting.json import as_dict
from repogen.reporting.progress import progress_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Command = TypeVar("Command", bound="Callable[..., object]")

HEADER_VARIABLE = "REPOGEN_SERVER_HEADER"
_HEADER = re.compile(r"(?P<key>[A-Za-z0-9][A-Za-z0-9_.-]*)=(?P<value>[ -~]+)", re.ASCII)


def connection_options(command: Command) -> Command:
    """Add the options for TLS and authentication; ``credentials_of`` reads their values."""
    for option in reversed(
        (
            click.option("--tls", is_flag=True, help="Connect with TLS; implied by the next three options."),
            click.option("--tls-root", type=FILE, metavar="FILE", help="PEM file with the root certificates."),
            click.option("--tls-key", type=FILE, metavar="FILE", help="PEM file with the client's private key."),
            click.option("--tls-cert", type=FILE, metavar="FILE", help="PEM file with the client's certificate chain."),
            click.option(
                "headers",
                "--header",
                multiple=True,
                metavar="KEY=VALUE",
                help=f"Header of every request; repeatable; visible to other users, unlike {HEADER_VARIABLE}.",
            ),
        )
    ):
        command = option(command)
    return command


def credentials_of(
    *, tls: bool, tls_root: Path | None, tls_key: Path | None, tls_cert: Path | None, headers: Iterable[str]
) -> Credentials:
    """Return the credentials of the options and of the environment.

    Raises:
        SpecError: A header is not KEY=VALUE; the message does not contain it, because it is a secret. Or there is only
            one of the client's key and certificate.
    """
    if (tls_key is None) != (tls_cert is None):
        raise SpecError("--tls-key and --tls-cert require each other", "pass both, or neither", code="deploy.tls")
    from_environment = os.environ.get(HEADER_VARIABLE)
    return Credentials(
        tls or tls_root is not None or tls_key is not None,
        tls_root,
        tls_key,
        tls_cert,
        dict(_parse_header(text) for text in (*((from_environment,) if from_environment else ()), *headers)),
    )


def _parse_header(text: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(text)
    if match is None:
        raise SpecError(
            "a header is not KEY=VALUE",
            f"for example authorization='Bearer …'; see --header and the environment variable {HEADER_VARIABLE}",
            code="deploy.header",
        )
    return match["key"].lower(), match["value"]


@click.command()
@click.argument("models", nargs=-1, metavar="[NAME]...")
@click.option(
    "servers", "--server", multiple=True, metavar="HOST:PORT", help="gRPC address of a running Triton; repeatable."
)
@click.option("--servers-file", type=FILE, metavar="FILE", help="File with more addresses, one per line.")
@click.option(
    "--repository",
    type=REPOSITORY,
    default=Path("model_repository"),
    show_default=True,
    metavar="DIR|URL",
    help="Repository with the content of the servers' repositories.",
)
@click.option(
    "unload", "--unload", multiple=True, metavar="NAME", help="Unload this model from the servers; repeatable."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time for loading a model; default: 600, or 60 for a server that polls.",
)
@click.option("--dry-run", is_flag=True, help="Show what the servers serve, but change nothing.")
@connection_options
@control_header_option
@json_option
@debug_option
def deploy(  # noqa: PLR0913 - one parameter per option
    *,
    models: tuple[str, ...],
    servers: tuple[str, ...],
    servers_file: Path | None,
    repository: Path,
    unload: tuple[str, ...],
    timeout: float | None,
    dry_run: bool,
    tls: bool,
    tls_root: Path | None,
    tls_key: Path | None,
    tls_cert: Path | None,
    headers: tuple[str, ...],
    as_json: bool,
    debug: bool,
) -> None:
    """Make running servers serve what a repository selects.

    Loads each NAME (default: every model that repogen built) on each server, and compares the server's responses with
    the golden tensors. If that fails, the server loads what it served before, and the command exits with code 6.
    """
    with handle_errors(debug=debug, as_json=as_json):
        credentials = credentials_of(tls=tls, tls_root=tls_root, tls_key=tls_key, tls_cert=tls_cert, headers=headers)
        with progress_view(quiet=as_json) as progress:
            report = api.deploy(
                *models,
                servers=servers,
                servers_file=servers_file,
                repository=repository,
                unload=unload,
                timeout=timeout,
                dry_run=dry_run,
                credentials=credentials,
                progress=progress,
            )
        print_report(lambda: deploy_text(report, debug=debug), lambda: as_dict(report), as_json=as_json)
        sys.exit(report.exit_code)
