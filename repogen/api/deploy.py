"""``repogen.deploy``: versions of a repository on running servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.deployment import DeployOptions
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import NO_CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.deployment import DeployReport
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials


def deploy(  # noqa: PLR0913 - one parameter per option of `repogen deploy`
    *models: str,
    servers: Sequence[str] = (),
    servers_file: Path | str | None = None,
    repository: Path | str = "model_repository",
    unload: Sequence[str] = (),
    timeout: float | None = None,
    credentials: Credentials = NO_CREDENTIALS,
    progress: Progress | None = None,
) -> DeployReport:
    """Make running servers serve the versions that a repository selects, as ``repogen deploy`` does.

    Each server loads a model, and its answers are compared with the golden tensors. If that fails, the server loads
    what it served before, and the report's ``exit_code`` is 6. The servers are changed one after another, and none
    after a failure. At Ctrl-C, the change under way is reversed, and the report has ``interrupted``.

    Example::

        report = repogen.deploy("digits", servers=["triton-0:8001", "triton-1:8001"])
        report.servers[0].models[0].serving  # (2,)

    Args:
        models: Names of the models; every model that repogen built when empty. The models of an ensemble's steps are
            deployed with it.
        servers: ``HOST:PORT`` or ``unix:PATH`` of each server's gRPC service.
        servers_file: File with one more address per line.
        repository: The repository; the servers' repositories have the same content.
        unload: Names of models that the servers should no longer serve.
        timeout: Seconds for loading a model, or for a polling server to load it; 600 or 60 when None.
        credentials: TLS and headers of the servers. The environment variable REPOGEN_CONTROL_HEADER has the header of
            their control API.
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
        server_addresses(servers, file), models, tuple(unload), timeout=timeout, credentials=credentials
    )
    return deployment.deploy(Path(repository), options, progress or Silent())
