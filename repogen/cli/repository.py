"""Commands on versions: ``versions``, ``verify``, ``diff``, ``rollback``, ``prune``, ``publish`` and ``sign``."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from repogen.api import repository as api
from repogen.api.deploy import deploy, require_servers
from repogen.cli.completion import repository_models
from repogen.cli.deploy import Connection, connection_options
from repogen.cli.group import (
    DIRECTORY,
    FILE,
    PATH_OR_URL,
    REPOSITORY,
    REPOSITORY_OR_MODEL,
    Integer,
    control_header_option,
    debug_option,
    handle_errors,
    json_option,
    print_report,
    tracking_option,
)
from repogen.cli.signing import Signing, Trust, signing_options, trust_options
from repogen.cli.spec_option import (
    DEFAULT_REPOSITORY,
    load_optional_tracking_spec,
    named_repository,
    repository_argument,
)
from repogen.errors import ExitCode, SpecError
from repogen.files.url import is_model_uri
from repogen.reporting.deploy_text import deploy_text
from repogen.reporting.json import as_dict
from repogen.reporting.output import write_text
from repogen.reporting.progress import progress_view
from repogen.reporting.repository_text import (
    prune_text,
    rollback_text,
    sign_text,
    transfer_text,
    verify_text,
    versions_text,
)

if TYPE_CHECKING:
    from pathlib import Path

_repository_option = click.option(
    "--repository",
    type=REPOSITORY,
    default=DEFAULT_REPOSITORY,
    show_default=True,
    metavar="DIR|URL",
    help="Model repository, such as s3://bucket/models.",
)
_spec_option = click.option(
    "--spec", type=FILE, metavar="FILE", help="Spec that sets the MLflow server; default: repogen.yaml, if it exists."
)
_AGE = re.compile(r"(?P<number>[0-9]{1,6})(?P<unit>[smhdw])")
_VERSION = re.compile(r"(?P<name>.+)@(?P<version>[0-9]{1,19})", re.DOTALL)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_stage_option = click.option(
    "--stage-dir", type=DIRECTORY, metavar="DIR", help="Stage here instead of next to the repository."
)


@click.command()
@click.argument("name", required=False, shell_complete=repository_models)
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
    queried for the numbers and aliases of versions that were registered.
    """
    with handle_errors(debug=debug, as_json=as_json):
        report = api.versions(
            name, repository=repository, spec=load_optional_tracking_spec(spec), tracking_uri=tracking_uri
        )
        print_report(lambda: versions_text(report), lambda: as_dict(report), as_json=as_json)


@click.command()
@click.argument("directory", type=REPOSITORY, default=DEFAULT_REPOSITORY, metavar="[DIRECTORY|URL]")
@click.option(
    "models", "--model", multiple=True, metavar="NAME", shell_complete=repository_models,
    help="Verify only this model; repeatable.",
)  # fmt: skip
@trust_options
@json_option
@debug_option
def verify(*, directory: Path, models: tuple[str, ...], trust: Trust, as_json: bool, debug: bool) -> None:
    """Compare every file of a repository with the manifests.

    The manifest of a version, manifest.json, lists its files with their digests. Hashes every file in DIRECTORY
    (default: model_repository). Reports files that differ from the manifest of their version, files that the manifest
    does not list, missing files, and a config.pbtxt that was edited. If a signature is required, also reports versions
    without a valid one. Exits with code 1 if there are findings.
    """
    with handle_errors(debug=debug, as_json=as_json):
        directory = repository_argument(directory, f"--model {directory}")
        report = api.verify(directory, models=models, signer=trust.signer())
        print_report(lambda: verify_text(report), lambda: as_dict(report), as_json=as_json)
        sys.exit(int(ExitCode.GATE if report.findings else ExitCode.OK))


@click.command()
@click.argument("name", shell_complete=repository_models)
@click.option(
    "--to", type=Integer(min=0), metavar="N", help="Version to serve; default: the newest below the served one."
)
@click.option("--release", is_flag=True, help="End the hold.")
@_repository_option
@click.option("--allow-breaking", is_flag=True, help="Roll back even if an ensemble would no longer load.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, but change nothing.")
@click.option(
    "servers",
    "--server",
    multiple=True,
    metavar="HOST:PORT",
    help="Deploy the version to this server after the change, as `repogen deploy` does; repeatable.",
)
@connection_options
@control_header_option
@_stage_option
@json_option
@debug_option
def rollback(  # noqa: PLR0913 - one parameter per option
    *,
    name: str,
    to: int | None,
    release: bool,
    repository: Path,
    allow_breaking: bool,
    dry_run: bool,
    servers: tuple[str, ...],
    connection: Connection,
    stage_dir: Path | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Make a repository serve an older version of NAME again.

    The version is served with its own config.pbtxt, and held: build and sync keep it until `repogen rollback NAME
    --release`. After that, the newest version is served again; in a synced repository, the next sync serves the version
    that the alias points to. Nothing is deleted. To move an alias of the MLflow registry back instead, use `repogen
    promote NAME --rollback`.
    """
    with handle_errors(debug=debug, as_json=as_json):
        if release and to is not None:
            raise click.UsageError(
                "--release and --to are mutually exclusive: --to holds a version, --release ends the hold"
            )
        repository = named_repository(repository)
        credentials = connection.credentials()
        if servers:
            require_servers(servers, credentials=credentials)
        report = api.rollback(
            name,
            to,
            repository=repository,
            release=release,
            allow_breaking=allow_breaking,
            dry_run=dry_run,
            stage_dir=stage_dir,
        )
        if not servers or dry_run:
            print_report(lambda: rollback_text(report), lambda: as_dict(report), as_json=as_json)
            return
        if not as_json:
            write_text(rollback_text(report))
        with progress_view(quiet=as_json) as progress:
            deployed = deploy(name, servers=servers, repository=repository, credentials=credentials, progress=progress)
        print_report(
            lambda: "\n" + deploy_text(deployed, debug=debug),
            lambda: as_dict(report) | {"deploy": as_dict(deployed)},
            as_json=as_json,
        )
        sys.exit(deployed.exit_code)


def model_and_version(text: str) -> tuple[str, int | None]:
    """Return the parts of NAME[@VERSION].

    Raises:
        SpecError: What follows the last @ is not a number.
    """
    match = _VERSION.fullmatch(text)
    if match is not None:
        return match["name"], int(match["version"])
    name, separator, version = text.rpartition("@")
    if separator:
        raise SpecError(
            f"{version!r} is not a version number",
            f"write NAME@VERSION, for example {name or 'digits'}@3; without @VERSION, it is the newest served version",
            code="repository.no-such-version",
        )
    return text, None


def _age(_context: click.Context, _option: click.Parameter, value: str | None) -> timedelta | None:
    """Return the duration of ``--older-than``."""
    if value is None:
        return None
    match = _AGE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a number with a unit, such as 30d, 12h or 2w")
    return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


@click.command()
@click.argument("name", required=False, shell_complete=repository_models)
@click.option(
    "--keep",
    type=Integer(min=0),
    required=True,
    metavar="K",
    help="Keep this many versions of each model: the newest served one, and those before it.",
)
@click.option("--older-than", callback=_age, metavar="AGE", help="Delete only versions older than this: 30d, 12h, 2w.")
@_repository_option
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, but delete nothing.")
@click.option("--ignore-registry", is_flag=True, help="Do not query the MLflow registry for aliases of the versions.")
@_stage_option
@_spec_option
@tracking_option
@json_option
@debug_option
def prune(  # noqa: PLR0913 - one parameter per option
    *,
    name: str | None,
    keep: int,
    older_than: timedelta | None,
    repository: Path,
    dry_run: bool,
    ignore_registry: bool,
    stage_dir: Path | None,
    spec: Path | None,
    tracking_uri: str | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Delete old versions that are no longer needed.

    Deletes versions of NAME, or of all models. Never deletes a version that is served, held, newer than the served one,
    aliased in the MLflow registry (unless --ignore-registry is set), pinned by an ensemble, the last intact one of its
    model, or not built by repogen.
    """
    with handle_errors(debug=debug, as_json=as_json):
        report = api.prune(
            name,
            keep=keep,
            repository=named_repository(repository),
            older_than=older_than,
            dry_run=dry_run,
            ignore_registry=ignore_registry,
            stage_dir=stage_dir,
            spec=load_optional_tracking_spec(spec),
            tracking_uri=tracking_uri,
        )
        print_report(lambda: prune_text(report), lambda: as_dict(report), as_json=as_json)


@click.command()
@click.argument("model", metavar="[NAME[@VERSION]]", required=False, shell_complete=repository_models)
@click.option("every", "--all", is_flag=True, help="Publish every model of the source.")
@click.option(
    "--from", "source", type=REPOSITORY, required=True, metavar="DIR|URL", help="Repository that has the version."
)
@click.option(
    "--to", "target", type=PATH_OR_URL, required=True, metavar="PATH|URL", help="Repository or package to publish to."
)
@click.option(
    "package_format",
    "--format",
    type=click.Choice(("sagemaker", "azureml")),
    help="Write a package for this service instead of publishing to a repository.",
)
@click.option("--allow-breaking", is_flag=True, help="Allow inputs and outputs that differ from the target's.")
@click.option("--dry-run", is_flag=True, help="Copy and check, but do not publish.")
@_stage_option
@trust_options
@json_option
@debug_option
def publish(  # noqa: PLR0913 - one parameter per option
    *,
    model: str | None,
    every: bool,
    source: Path,
    target: Path,
    package_format: str | None,
    allow_breaking: bool,
    dry_run: bool,
    stage_dir: Path | None,
    trust: Trust,
    as_json: bool,
    debug: bool,
) -> None:
    """Copy verified versions from one repository to another.

    Copies one version of NAME, or, with --all, the newest served version of every model.
    VERSION is a version in the source; the default is the newest one that is served there. Every byte is compared with
    the manifest while it is copied, and the version gets the target's next number. An ensemble is published with its
    steps. With --format, writes a model.tar.gz for SageMaker, or a directory for Azure ML. With --to
    oci://HOST/NAME:TAG, pushes an image to a registry.
    """
    if every is (model is not None):
        raise click.UsageError("Specify either NAME or --all.")
    with handle_errors(debug=debug, as_json=as_json):
        name, version = (None, None) if model is None else model_and_version(model)
        report = api.publish(
            name,
            version,
            source=source,
            target=target,
            allow_breaking=allow_breaking,
            dry_run=dry_run,
            stage_dir=stage_dir,
            signer=trust.signer(),
            package_format=package_format,
        )
        print_report(lambda: transfer_text(report), lambda: as_dict(report), as_json=as_json)


@click.command()
@click.argument("name", shell_complete=repository_models)
@click.argument("before", type=Integer(min=0), required=False, metavar="[A]")
@click.argument("after", type=Integer(min=0), required=False, metavar="[B]")
@_repository_option
@click.option(
    "--against",
    type=REPOSITORY_OR_MODEL,
    metavar="DIR|URL",
    help="Repository of version B (default: that of version A); or models:/NAME@ALIAS, a registered version.",
)
@_spec_option
@tracking_option
@click.option("--markdown", is_flag=True, help="Print Markdown, for a comment on a pull request.")
@json_option
@debug_option
def diff(  # noqa: PLR0913 - one parameter per option
    *,
    name: str,
    before: int | None,
    after: int | None,
    repository: Path,
    against: Path | None,
    spec: Path | None,
    tracking_uri: str | None,
    markdown: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Compare two versions of NAME.

    Compares version A with version B: inputs and outputs, config.pbtxt, opset, operators, weights, metrics and files. B
    is the newest version by default, and A the one before it. With --against DIR, A and B are in two repositories, and
    both are the newest version by default. With --against models:/NAME@ALIAS or models:/NAME/VERSION, compares that
    version, which is downloaded from the MLflow registry, with version A of the repository, by default its newest one.
    """
    with handle_errors(debug=debug, as_json=as_json):
        if markdown and as_json:
            raise click.UsageError("--markdown and --json are mutually exclusive")
        loaded_spec = load_optional_tracking_spec(spec) if against is not None and is_model_uri(against) else None
        report = api.diff(
            name, before, after, repository=repository, against=against, spec=loaded_spec, tracking_uri=tracking_uri
        )
        from repogen.reporting.diff_text import diff_markdown, diff_text  # noqa: PLC0415 - imports templates

        if markdown:
            write_text(diff_markdown(report).rstrip("\n"))
        else:
            print_report(lambda: diff_text(report), lambda: as_dict(report), as_json=as_json)


@click.command()
@click.argument("model", metavar="NAME[@VERSION]", shell_complete=repository_models)
@_repository_option
@signing_options
@json_option
@debug_option
def sign(*, model: str, repository: Path, signing: Signing, as_json: bool, debug: bool) -> None:
    """Sign a published version.

    Without @VERSION, signs the newest version that Triton serves. Every file is compared with the manifest first. The
    signature covers every file of the version, and replaces an existing signature.
    """
    with handle_errors(debug=debug, as_json=as_json):
        key = signing.key()
        if key is None:
            raise SpecError(
                "no signing key is specified", "pass --sign-key FILE or --sign-keyless", code="sign.options"
            )
        name, version = model_and_version(model)
        report = api.sign(name, version, key=key, repository=named_repository(repository))
        print_report(lambda: sign_text(report), lambda: as_dict(report), as_json=as_json)
