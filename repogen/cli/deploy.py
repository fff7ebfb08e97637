"""``repogen deploy``, and the options of commands that deploy."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from repogen.api import deploy as api
from repogen.artifacts.serving import Credentials
from repogen.cli.completion import repository_models
from repogen.cli.group import (
    FILE,
    REPOSITORY,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
)
from repogen.cli.signing import Trust, trust_options
from repogen.cli.spec_option import named_repository
from repogen.errors import SpecError
from repogen.reporting.deploy_text import deploy_text
from repogen.reporting.github import write_deploy
from repogen.reporting.json import as_dict
from repogen.reporting.progress import progress_view

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
Command = TypeVar("Command", bound="Callable[..., object]")

HEADER_VARIABLE = "REPOGEN_SERVER_HEADER"
_HEADER = re.compile(r"(?P<key>[A-Za-z0-9][A-Za-z0-9_.-]*)=(?P<value>[ -~]+)", re.ASCII)


@dataclass(frozen=True)
class Connection:
    """The values of the options for TLS and authentication."""

    tls: bool
    tls_root: Path | None
    tls_key: Path | None
    tls_cert: Path | None
    headers: tuple[str, ...]

    def credentials(self) -> Credentials:
        """Return the credentials of the options and of the environment.

        Raises:
            SpecError: A header is not KEY=VALUE; the message does not contain it, because it is a secret. Or there is
                only one of the client's key and certificate.
        """
        if (self.tls_key is None) != (self.tls_cert is None):
            raise SpecError("--tls-key and --tls-cert require each other", "pass both, or neither", code="deploy.tls")
        from_environment = os.environ.get(HEADER_VARIABLE)
        headers = (*((from_environment,) if from_environment else ()), *self.headers)
        return Credentials(
            self.tls or self.tls_root is not None or self.tls_key is not None,
            self.tls_root,
            self.tls_key,
            self.tls_cert,
            dict(map(_parse_header, headers)),
        )


def connection_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the options for TLS and authentication; the command gets them as one ``connection``."""

    @wraps(command)
    def with_connection(*arguments: object, **options: Any) -> Result:  # noqa: ANN401 - of any command
        values = {field.name: options.pop(field.name) for field in fields(Connection)}
        return command(*arguments, **options, connection=Connection(**values))

    return _add_options(with_connection)


def _add_options(command: Command) -> Command:
    for option in reversed(
        (
            click.option("--tls", is_flag=True, help="Connect to Triton with TLS; implied by the next three options."),
            click.option("--tls-root", type=FILE, metavar="FILE", help="PEM file with the root certificates."),
            click.option("--tls-key", type=FILE, metavar="FILE", help="PEM file with the client's private key."),
            click.option("--tls-cert", type=FILE, metavar="FILE", help="PEM file with the client's certificate chain."),
            click.option(
                "headers",
                "--header",
                multiple=True,
                metavar="KEY=VALUE",
                help="Header to send to Triton with every request; repeatable. Other users of the machine can read "
                f"this option, but not the variable {HEADER_VARIABLE}.",
            ),
        )
    ):
        command = option(command)
    return command


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
@click.argument("models", nargs=-1, metavar="[NAME]...", shell_complete=repository_models)
@click.option(
    "servers",
    "--server",
    multiple=True,
    metavar="HOST:PORT",
    help="gRPC address of a running Triton server; repeatable.",
)
@click.option("--servers-file", type=FILE, metavar="FILE", help="File with more addresses, one per line.")
@click.option(
    "--repository",
    type=REPOSITORY,
    default=Path("model_repository"),
    show_default=True,
    metavar="DIR|URL",
    help="Repository to deploy; the servers' own repositories must have the same content.",
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
@trust_options
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
    connection: Connection,
    trust: Trust,
    as_json: bool,
    debug: bool,
) -> None:
    """Make running servers serve the versions that a repository selects.

    Loads each NAME on each server, and compares the server's responses with the outputs that the build recorded (the
    golden tensors). If one of these steps fails, the command exits with code 6, and the server loads what it served
    before, unless it polls its repository. The default is every model that repogen built, or none with --unload.
    """
    with handle_errors(debug=debug, as_json=as_json):
        credentials = connection.credentials()
        with progress_view(quiet=as_json) as progress:
            report = api.deploy(
                *models,
                servers=servers,
                servers_file=servers_file,
                repository=named_repository(repository),
                unload=unload,
                timeout=timeout,
                dry_run=dry_run,
                credentials=credentials,
                signer=trust.signer(),
                progress=progress,
            )
        print_report(lambda: deploy_text(report, debug=debug), lambda: as_dict(report), as_json=as_json)
        write_deploy(report, err=as_json)
        sys.exit(report.exit_code)
