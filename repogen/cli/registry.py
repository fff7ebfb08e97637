"""``repogen promote``, ``repogen history`` and ``repogen sync``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repogen.api import registry as api
from repogen.api.deploy import deploy_synced, require_servers
from repogen.cli.completion import repository_models, server_names, spec_models
from repogen.cli.deploy import Connection, connection_options
from repogen.cli.group import (
    FILE,
    REPOSITORY,
    SERVER,
    Integer,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
    tracking_option,
)
from repogen.cli.signing import Trust, trust_options
from repogen.cli.spec_option import load_optional_spec, load_optional_tracking_spec, named_repository
from repogen.errors import ExitCode, RepogenError, SpecError, machine_errors
from repogen.reporting.deploy_text import deploy_text
from repogen.reporting.github import write_deploy, write_promotion, write_sync
from repogen.reporting.json import as_dict
from repogen.reporting.output import write_text
from repogen.reporting.progress import progress_view
from repogen.reporting.registry_text import followed_text, history_text, promotion_text, sync_text
from repogen.reporting.text import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from repogen.artifacts.deployment import DeployReport
    from repogen.artifacts.sync import Followed, SyncReport

_SERVER_SPEC = "Spec that sets the MLflow server; default: repogen.yaml, if it exists."


@click.command()
@click.argument("name", shell_complete=spec_models)
@click.argument("version", type=Integer(min=1), required=False)
@click.option("--alias", default="champion", show_default=True, help="Alias to move.")
@click.option(
    "gates",
    "--gate",
    multiple=True,
    metavar="GATE",
    help="Set or remove a gate: parity=1e-3, latency.max_ratio=1.1, size=off, …; repeatable.",
)
@click.option(
    "rolls_back", "--rollback", is_flag=True, help="Move the alias back to its previous version, without gates."
)
@click.option(
    "--server", default="embedded", show_default=True, shell_complete=server_names,
    help=f"Triton server to measure on: {SERVER}.",
)  # fmt: skip
@connection_options
@control_header_option
@click.option("--dry-run", is_flag=True, help="Measure and evaluate, but do not move the alias.")
@click.option(
    "--spec", type=FILE, metavar="FILE", help="Spec with the gates of the model; default: repogen.yaml, if it exists."
)
@tracking_option
@json_option
@debug_option
def promote(  # noqa: PLR0913 - one parameter per option
    *,
    name: str,
    version: int | None,
    alias: str,
    gates: tuple[str, ...],
    rolls_back: bool,
    server: str,
    connection: Connection,
    dry_run: bool,
    spec: Path | None,
    tracking_uri: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Point an alias of NAME to VERSION if it passes its gates.

    NAME is a model in the MLflow registry. VERSION is its version there; the default is the newest published one.
    """
    with handle_errors(debug=debug, as_json=as_json):
        if rolls_back and (version is not None or gates):
            raise click.UsageError(
                "--rollback accepts neither VERSION nor --gate: it goes back one version, without gates"
            )
        loaded_spec = load_optional_tracking_spec(spec) if rolls_back else load_optional_spec(spec)
        with progress_view(quiet=as_json) as progress:
            if rolls_back:
                report = api.rollback_alias(
                    name, alias=alias, spec=loaded_spec, dry_run=dry_run, tracking_uri=tracking_uri
                )
            else:
                report = api.promote(
                    name,
                    version,
                    alias=alias,
                    gates=gates,
                    spec=loaded_spec,
                    spec_required=spec is not None,
                    server=server,
                    credentials=connection.credentials(),
                    dry_run=dry_run,
                    tracking_uri=tracking_uri,
                    progress=progress,
                )
        print_report(lambda: promotion_text(report), lambda: as_dict(report), as_json=as_json)
        write_promotion(report, loaded_spec, err=as_json)
        sys.exit(report.exit_code)


@click.command()
@click.argument("name", shell_complete=spec_models)
@click.option("--alias", help="Show only this alias; default: all.")
@click.option("--spec", type=FILE, metavar="FILE", help=_SERVER_SPEC)
@tracking_option
@json_option
@debug_option
def history(
    *, name: str, alias: str | None, spec: Path | None, tracking_uri: str | None, as_json: bool, debug: bool
) -> None:
    """Show which version each alias of NAME pointed to, and when.

    For each move, shows who moved the alias, why, and what the gates measured.
    """
    with handle_errors(debug=debug, as_json=as_json):
        periods = api.history(name, alias=alias, spec=load_optional_tracking_spec(spec), tracking_uri=tracking_uri)
        print_report(lambda: history_text(periods), lambda: as_dict(periods), as_json=as_json)


@click.command()
@click.option("--alias", required=True, help="Serve the versions that this alias points to, for example champion.")
@click.option(
    "--repository",
    type=REPOSITORY,
    default=Path("model_repository"),
    show_default=True,
    metavar="DIR|URL",
    help="Repository to sync.",
)
@click.option(
    "models", "--model", multiple=True, metavar="NAME", shell_complete=repository_models,
    help="Sync only this model; repeatable.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be done, but change nothing.")
@click.option(
    "--prune",
    is_flag=True,
    help="Delete old versions that are no longer needed, and models without the alias; not with --deploy.",
)
@click.option(
    "servers",
    "--deploy",
    multiple=True,
    metavar="HOST:PORT",
    help="After the sync, deploy the changed models to this server, as `repogen deploy` does; repeatable.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Run until Ctrl-C: sync when a webhook from MLflow arrives here, and at every --interval. The variable "
    "REPOGEN_WEBHOOK_SECRET must contain the webhook's secret.",
)
@click.option(
    "--interval", type=click.FloatRange(min=1), default=60, show_default=True, metavar="SECONDS",
    help="With --listen: seconds between syncs without a webhook.",
)  # fmt: skip
@connection_options
@control_header_option
@trust_options
@click.option("--spec", type=FILE, metavar="FILE", help=_SERVER_SPEC)
@tracking_option
@json_option
@debug_option
def sync(  # noqa: PLR0913 - one parameter per option
    *,
    alias: str,
    repository: Path,
    models: tuple[str, ...],
    dry_run: bool,
    prune: bool,
    servers: tuple[str, ...],
    listen: str | None,
    interval: float,
    connection: Connection,
    trust: Trust,
    spec: Path | None,
    tracking_uri: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Make a repository serve what an alias points to.

    Downloads the versions from the MLflow registry and publishes each one atomically.
    """
    with handle_errors(debug=debug, as_json=as_json), progress_view(quiet=as_json) as progress:
        if servers and prune:
            raise SpecError(
                "--prune and --deploy cannot be combined: a failed deploy restores a version that --prune deletes",
                "run `repogen sync --prune` after the deploy",
                code="sync.prune",
            )
        if listen is not None and (dry_run or as_json):
            raise SpecError("--listen cannot be combined with --dry-run or --json", code="sync.listen")
        repository = named_repository(repository)
        credentials = connection.credentials()
        if servers:
            require_servers(servers, credentials=credentials)
        options: dict[str, Any] = {
            "alias": alias,
            "models": models,
            "prune": prune,
            "signer": trust.signer(),
            "spec": load_optional_tracking_spec(spec),
            "tracking_uri": tracking_uri,
            "progress": progress,
        }
        if listen is not None:
            deploy = partial(deploy_synced, servers=servers, credentials=credentials, progress=progress)
            followed_syncs = api.follow(repository, listen=listen, interval=interval, **options)
            _print_syncs(followed_syncs, deploy if servers else None, debug=debug)
            return
        report = api.sync(repository, dry_run=dry_run, **options)
        write_sync(report, err=as_json)
        if not servers or dry_run:
            print_report(lambda: sync_text(report, debug=debug), lambda: as_dict(report), as_json=as_json)
            sys.exit(report.exit_code)
        if not as_json:
            write_text(sync_text(report, debug=debug), wrap=True)
        deployed = deploy_synced(report, servers, credentials=credentials, progress=progress)
        print_report(
            lambda: "\n" + deploy_text(deployed, debug=debug),
            lambda: as_dict(report) | {"deploy": as_dict(deployed)},
            as_json=as_json,
        )
        write_deploy(deployed, err=as_json)
        codes = [code for code in (report.exit_code, deployed.exit_code) if code]
        sys.exit(deployed.exit_code if deployed.interrupted else min(codes, default=ExitCode.OK))


def _print_syncs(
    syncs: Iterable[Followed], deploy: Callable[[SyncReport], DeployReport] | None, *, debug: bool
) -> None:
    """Print each sync that changed something or failed, and deploy it, until Ctrl-C."""
    begins = True
    try:
        for followed in syncs:
            if begins:
                write_text(f"listening on {followed.address}; press Ctrl-C to stop")
            text = followed_text(followed, begins=begins, debug=debug)
            begins = False
            if text:
                write_text(text, wrap=True)
            if deploy is not None and followed.report is not None:
                _deploy(deploy, followed.report, debug=debug)
    except KeyboardInterrupt:
        write_text("stopped")


def _deploy(deploy: Callable[[SyncReport], DeployReport], report: SyncReport, *, debug: bool) -> None:
    """Deploy what a sync changed; an error does not end the loop."""
    try:
        with machine_errors():
            deployed = deploy(report)
    except RepogenError as error:
        write_text(error_text(error.record, debug=debug), err=True)
        return
    if report.changed or deployed.exit_code:
        write_text(deploy_text(deployed, debug=debug), wrap=True)
    if deployed.interrupted:
        raise KeyboardInterrupt
