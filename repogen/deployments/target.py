"""The target URI of ``mlflow deployments -t``: servers, how to connect to them, and the repository that they read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from repogen.api.working_directory import REPOSITORY as DEFAULT_REPOSITORY
from repogen.api.working_directory import own_default
from repogen.artifacts.serving import NO_CREDENTIALS, Credentials
from repogen.deploy.addresses import server_addresses
from repogen.errors import SpecError
from repogen.files.url import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "triton-repogen"
SERVERS_VARIABLE = "REPOGEN_DEPLOY_SERVERS"
REPOSITORY_VARIABLE = "REPOGEN_DEPLOY_REPOSITORY"
_CREDENTIALS = frozenset({"tls", "tls_root", "tls_key", "tls_cert"})


@dataclass(frozen=True)
class Target:
    """The servers of a target, and how to use them.

    Attributes:
        servers: gRPC address of each server.
        repository: The repository that the servers read.
        credentials: How to connect.
    """

    servers: tuple[str, ...]
    repository: Path
    credentials: Credentials = NO_CREDENTIALS


def parse_target(
    uri: str, config: Mapping[str, object] | None = None, environment: Mapping[str, str] = os.environ
) -> Target:
    """Return a target; the options of a call override the URI, which overrides the environment.

    >>> parse_target("triton-repogen://triton:8001?repository=/models", environment={})
    Target(servers=('triton:8001',), repository=PosixPath('/models'), ...)

    Args:
        uri: ``triton-repogen``, ``triton-repogen://HOST:PORT[,HOST:PORT]?repository=DIR``, or
            ``triton-repogen://unix:PATH?repository=DIR``.
        config: Options of the call: ``repository``, ``tls``, ``tls_root``, ``tls_key``, ``tls_cert``.
        environment: Environment variables: REPOGEN_DEPLOY_SERVERS, REPOGEN_DEPLOY_REPOSITORY.

    Raises:
        SpecError: There is no server, an address is not valid, an option is unknown, or the repository is in an object
            store.
    """
    parts = urlsplit(uri)
    options = {**dict(parse_qsl(parts.query)), **{key: str(value) for key, value in (config or {}).items()}}
    if unknown := sorted(options.keys() - _CREDENTIALS - {"repository"}):
        raise SpecError(
            f"{', '.join(unknown)}: not an option of the target {SCHEME}",
            f"the options are repository, {', '.join(sorted(_CREDENTIALS))}",
            code="deployments.option",
        )
    netloc = parts.netloc + parts.path if parts.netloc == "unix:" else parts.netloc
    names = netloc or environment.get(SERVERS_VARIABLE, "")
    servers = tuple(name for name in names.split(",") if name)
    if not servers:
        raise SpecError(
            "the target does not contain the address of a server",
            f"use -t {SCHEME}://HOST:PORT, with the address of Triton's gRPC service, or set {SERVERS_VARIABLE}",
            code="deployments.server",
        )
    repository = options.get("repository") or environment.get(REPOSITORY_VARIABLE) or own_default(DEFAULT_REPOSITORY)
    if is_url(repository):
        raise SpecError(
            f"the repository of the target {SCHEME} must be a local directory",
            "publish to the object store with `repogen publish`, and deploy with `repogen deploy`",
            code="deployments.option",
        )
    return Target(server_addresses(servers, None), Path(repository), _credentials(options))


def _credentials(options: Mapping[str, str]) -> Credentials:
    if not _CREDENTIALS & options.keys():
        return NO_CREDENTIALS
    root, key, certificate = (
        Path(options[name]) if name in options else None for name in ("tls_root", "tls_key", "tls_cert")
    )
    return Credentials(options.get("tls", "true").lower() != "false", root, key, certificate, {})
