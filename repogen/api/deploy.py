"""``repogen.deploy``: versions of a repository on running servers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.working_directory import own_default
from repogen.artifacts.deployment import DeployOptions, DeployReport
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.artifacts.sync import CHANGES, SyncAction
from repogen.artifacts.transfer import PackageFormat
from repogen.errors import RepogenError, SmokeError
from repogen.files import is_directory
from repogen.files.url import RepositoryUrl, location
from repogen.stores.open import open_url, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.attestation import TrustedSigner
    from repogen.artifacts.deployment import ServerDeployment
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials
    from repogen.artifacts.sync import SyncReport


def deploy(  # noqa: PLR0913 - one parameter per option of `repogen deploy`
    *models: str,
    servers: Sequence[str] = (),
    servers_file: Path | str | None = None,
    repository: Path | str = "model_repository",
    unload: Sequence[str] = (),
    timeout: float | None = None,
    dry_run: bool = False,
    credentials: Credentials = NO_CREDENTIALS,
    signer: TrustedSigner | None = None,
    progress: Progress | None = None,
) -> DeployReport:
    """Make running servers serve the versions that a repository selects, as ``repogen deploy`` does.

    Each server loads a model, and its responses are compared with the golden tensors. If that fails, the server loads
    what it served before, and the report's ``exit_code`` is 6. The servers are changed one after another; after a
    failure, no further server is changed. Ctrl-C reverses the change in progress, and the report has ``interrupted``.

    Example::

        report = repogen.deploy("digits", servers=["triton-0:8001", "triton-1:8001"])
        report.servers[0].models[0].serving  # (2,)

    Args:
        models: Names of the models; every model that repogen built when empty. The models of an ensemble's steps are
            deployed with it.
        servers: ``HOST:PORT`` or ``unix:PATH`` of each server's gRPC service.
        servers_file: File with more addresses, one per line.
        repository: The repository; the servers' repositories have the same content.
        unload: Names of models that the servers should no longer serve.
        timeout: Seconds for loading a model, or for a polling server to load it; 600 or 60 when None.
        dry_run: Only report what the servers serve.
        credentials: TLS and headers of the servers. The environment variable REPOGEN_CONTROL_HEADER has the header of
            their control API.
        signer: Whose signatures the versions must have; none are required when None.
        progress: Receives progress events; silent by default.

    Returns:
        For each server and model, what was done and which versions are served.

    Raises:
        repogen.errors.SpecError: A server's address, the repository or a model does not exist or is not valid.
        repogen.errors.RepogenError: The repository's versions cannot be deployed; no server was changed.
    """
    from repogen.deploy import deploy as deployment  # noqa: PLC0415 - imports gRPC, which --help does not need
    from repogen.deploy.addresses import server_addresses  # noqa: PLC0415 - the same

    file = None if servers_file is None else Path(servers_file)
    options = DeployOptions(
        server_addresses(servers, file), models, tuple(unload), timeout, dry_run, credentials, signer
    )
    events = progress or Silent()
    place = location(own_default(repository))
    if not isinstance(place, RepositoryUrl) or place.scheme == PackageFormat.OCI:
        return run(place, lambda path: deployment.deploy(path, options, events))
    with open_url(place, None, events, older=()) as opened:
        return opened.with_urls(deployment.deploy(opened.path, options, events, opened.fetch_versions))


def require_servers(servers: Sequence[str], *, credentials: Credentials = NO_CREDENTIALS) -> None:
    """Check that servers respond, before the repository that they read is changed.

    Args:
        servers: ``HOST:PORT`` or ``unix:PATH`` of each server's gRPC service.
        credentials: TLS and headers of the servers.

    Raises:
        repogen.errors.SpecError: An address or the control header is not valid, or a TLS file cannot be read.
        repogen.errors.SmokeError: A server does not respond, or its control API requires another header.
    """
    from repogen.deploy.addresses import server_addresses  # noqa: PLC0415 - as above
    from repogen.deploy.live_server import open_server  # noqa: PLC0415 - the same

    for address in server_addresses(servers, None):
        with open_server(address, credentials, None) as server:
            server.models()


def deploy_synced(
    report: SyncReport,
    servers: Sequence[str],
    *,
    credentials: Credentials = NO_CREDENTIALS,
    progress: Progress | None = None,
) -> DeployReport:
    """Deploy what a sync changed: load the versions that it published, and unload the models that lost the alias.

    A version that failed on a server is not deployed again by the next sync, because clients would get its responses.
    A server that does not serve what the repository selects of the models that the sync did not change is an error in
    the report.

    Args:
        report: What ``repogen.sync`` returned.
        servers: ``HOST:PORT`` or ``unix:PATH`` of each server's gRPC service.
        credentials: TLS and headers of the servers.
        progress: Receives progress events; silent by default.

    Returns:
        As ``deploy``.

    Raises:
        repogen.errors.RepogenError: As ``deploy``.
    """
    names = dict.fromkeys(version.model for version in report.versions if version.action in CHANGES)
    existing = run(report.repository, lambda path: [name for name in names if is_directory(path / name)])
    published = {version.model for version in report.versions if version.action is SyncAction.PUBLISHED}
    changed = [name for name in existing if name in published]
    removed = [name for name in names if name not in existing]
    unchanged_models = {version.model for version in report.versions if version.action is SyncAction.KEPT}
    if not changed and not removed and not unchanged_models:
        return DeployReport(report.repository, ())
    run_deploy = partial(
        deploy, servers=servers, repository=report.repository, credentials=credentials, progress=progress
    )
    if not changed and not removed:
        inspected = run_deploy(*sorted(unchanged_models), dry_run=True)
        return replace(inspected, servers=tuple(map(_with_pending_error, inspected.servers)), dry_run=False)
    result = run_deploy(*changed, unload=removed)
    if result.exit_code or not unchanged_models:
        return result
    pending = {}
    with suppress(RepogenError):  # the next sync, which changes nothing, reports it
        inspected = run_deploy(*sorted(unchanged_models), dry_run=True)
        pending = {server.server: _with_pending_error(server).error for server in inspected.servers}
    return replace(
        result, servers=tuple(replace(server, error=pending.get(server.server)) for server in result.servers)
    )


def _with_pending_error(server: ServerDeployment) -> ServerDeployment:
    pending = [model.model for model in server.models if model.serving != model.expected]
    if not pending or server.error is not None:
        return server
    error = SmokeError(
        f"{server.server} does not serve the versions of {', '.join(pending)} that the repository selects",
        "an earlier deploy to it failed or was interrupted: see its report, then run `repogen deploy`, or `repogen "
        "promote --rollback`",
        code="deploy.pending",
    )
    return replace(server, error=error.record)
