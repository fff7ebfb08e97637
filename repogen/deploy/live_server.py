"""A running server of a deploy: what it serves of a model, and requests that change it.

Measured on tritonserver 2.51.0 in explicit mode (tests/integration/test_deploy_command.py):

- The old version responds until the new one is ready; requests in progress end with the version that they began with.
- A failed load keeps the versions that are served. From then on, the server reports that it is not ready, unless it
  runs with ``--strict-readiness=false``.
- A load request with a config replaces config.pbtxt until the model's directory changes. Until then, a load request
  without a config does nothing, and one with the repository's config loads the repository's version.
- A load request waits for an earlier one on the same model.
- A load request for a step also reloads the ensembles that use it, with the versions that the repository then selects.
  An ensemble that was reloaded in this way can be reloaded by later requests for other models.
- A server in mode ``none`` and one in mode ``poll`` reject load requests with the same message.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode
from repogen.errors import SmokeError
from repogen.serving import control
from repogen.serving.control import configured_header
from repogen.serving.remote import RemoteTriton
from repogen.smoke.grpc_client import connect
from repogen.smoke.inference import Limits, NoResponseError, RefusedError
from repogen.smoke.preparation import as_json
from repogen.triton_config.text.parse import empty_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.serving import Credentials, RunningTriton
    from repogen.smoke.grpc_client import GrpcClient
    from repogen.triton_config.text.parse import ModelConfig

_SNAPSHOT_SECONDS = 5.0
_RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class Snapshot:
    """What a server serves of a model.

    Attributes:
        versions: Versions that are ready, newest first.
        config: The config that the server uses; None if it serves no version.
        failures: Why versions are not ready, by version.
        loading: Whether a load request is under way, for example one whose client was interrupted.
    """

    versions: tuple[int, ...]
    config: ModelConfig | None
    failures: dict[int, str]
    loading: bool

    def serves_like(self, other: Snapshot) -> bool:
        """Return whether the versions are the same and stay so, and the config except for its version policy."""
        return not self.loading and self.versions == other.versions and self.pinned() == other.pinned()

    def pinned(self) -> ModelConfig:
        """Return the config with a version policy that selects exactly these versions."""
        config = empty_config()
        if self.config is not None:
            config.CopyFrom(self.config)
        config.version_policy.Clear()
        config.version_policy.specific.versions.extend(sorted(self.versions))
        return config


@dataclass
class LiveServer:
    """A connection to a server.

    Attributes:
        address: Its address.
        running: The server.
        client: The connection.
        limits: Limits on time and size.
        mode: ``EXPLICIT`` after a load request, ``POLL`` for a server that rejected it; None before.
    """

    address: str
    running: RunningTriton
    client: GrpcClient
    limits: Limits
    mode: ControlMode | None = None

    def models(self) -> frozenset[str]:
        """Return the names of the models in the server's repository."""
        with self.named_errors():
            return frozenset(entry.name for entry in self.client.index())

    def snapshot(self, name: str) -> Snapshot:
        """Return what the server serves of a model.

        A version can be unloaded between two requests; the state is then read again.
        """
        with self.named_errors():
            end = time.monotonic() + _SNAPSHOT_SECONDS
            while time.monotonic() < end:
                with suppress(RefusedError):
                    return self._snapshot(name)
                time.sleep(_RETRY_SECONDS)
            return self._snapshot(name)

    def load(self, name: str, config: ModelConfig | None = None) -> bool:
        """Load a model and wait until it is ready.

        Args:
            name: The model.
            config: Replaces the config.pbtxt of the server's repository; None for that one.

        Returns:
            Whether the server accepts load requests; False for one that polls, or has no control mode.

        Raises:
            SmokeError: The server did not load it, and serves what it served before; or it does not respond, or did
                not load the model in time.
        """
        with self.named_errors():
            try:
                self.client.load(name, None if config is None else as_json(config), {})
            except RefusedError as refusal:
                if not self._is_explicit(refusal):
                    return False
                raise SmokeError(
                    f"{name}: {self.address} did not load it: {refusal.message}",
                    "`repogen smoke` tests it on another server",
                    code="deploy.load",
                ) from refusal
        self.mode = ControlMode.EXPLICIT
        return True

    def unload(self, name: str) -> bool:
        """Unload a model and wait until it is unloaded; return False for a server that polls, as ``load`` does."""
        with self.named_errors():
            try:
                self.client.unload(name)
            except RefusedError as refusal:
                if self._is_explicit(refusal):
                    raise
                return False
        self.mode = ControlMode.EXPLICIT
        return True

    def _is_explicit(self, refusal: RefusedError) -> bool:
        """Return whether a server that refused a load request is in explicit mode, and remember its mode.

        Raises:
            SmokeError: Its control API requires another header.
        """
        error = control.refusal(refusal.message, self.running.endpoint.control)
        if error is not None and error.code != control.NOT_EXPLICIT:
            raise error
        self.mode = ControlMode.EXPLICIT if error is None else ControlMode.POLL
        return error is None

    def serving(self) -> dict[str, tuple[int, ...]]:
        """Return the versions that are ready, newest first, by model."""
        versions: dict[str, list[int]] = {}
        with self.named_errors():
            for entry in self.client.index():
                if entry.state == "READY" and entry.version is not None:
                    versions.setdefault(entry.name, []).append(entry.version)
        return {name: tuple(sorted(numbers, reverse=True)) for name, numbers in versions.items()}

    @contextmanager
    def reconnected(self) -> Iterator[LiveServer]:
        """Yield another connection, with enough time for a load that is under way.

        A load request waits for an earlier one on the same model, which can be one that took too long.
        """
        limits = Limits(load_seconds=max(self.limits.load_seconds, Limits().load_seconds))
        with connect(self.running.endpoint, limits) as client:
            yield replace(self, client=client, limits=limits)

    def unready_reason(self, names: Sequence[str]) -> str:
        """Return why the server's health check fails because of models; empty if it does not."""
        with self.named_errors():
            if self.client.server_ready():
                return ""
        reasons = [
            f"{name} version {version}: {' '.join(reason.split())[:200]}"
            for name in names
            for version, reason in self.snapshot(name).failures.items()
        ]
        if not reasons:
            return ""
        return (
            f"the server reports that it is not ready, because of {'; '.join(reasons)}; to prevent this, start it with "
            "--strict-readiness=false"
        )

    def _snapshot(self, name: str) -> Snapshot:
        entries = [entry for entry in self.client.index() if entry.name == name]
        numbers = {entry.version for entry in entries if entry.state == "READY"}
        ready = tuple(sorted((number for number in numbers if number is not None), reverse=True))
        failures = {
            entry.version: entry.reason
            for entry in entries
            if entry.version is not None and entry.state == "UNAVAILABLE" and entry.reason not in {"", "unloaded"}
        }
        loading = any(entry.state == "LOADING" for entry in entries)
        return Snapshot(ready, self.client.config(name, ready[0]) if ready else None, failures, loading)

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Turn errors of requests into errors about this server.

        Raises:
            SmokeError: The server does not respond, did not complete a request in time, or rejected one.
        """
        try:
            yield
        except RefusedError as refusal:
            raise control.refusal(refusal.message, self.running.endpoint.control) or SmokeError(
                f"{self.address}: the server rejected a request: {refusal}",
                "see --header, --control-header and the server's log",
                code="deploy.rejected",
            ) from refusal
        except NoResponseError as error:
            if self.client.live():
                raise SmokeError(
                    f"{self.address}: the server did not complete a request in time: {error}",
                    "run `repogen deploy` with a longer --timeout",
                    code="deploy.timeout",
                ) from error
            raise SmokeError(
                f"{self.address}: the server no longer responds: {error}",
                "see the server's log; deploy again when it responds",
                code="deploy.server-lost",
            ) from error


@contextmanager
def open_server(address: str, credentials: Credentials, timeout: float | None) -> Iterator[LiveServer]:
    """Yield a connection to a server.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH``.
        credentials: How to connect.
        timeout: Seconds for loading a model; None for the default.

    Raises:
        SpecError: A file of the credentials cannot be read, or the control header is not KEY=VALUE.
        ServerError: No Triton responds there.
        SmokeError: Its control API requires another header.
    """
    limits = Limits() if timeout is None else Limits(load_seconds=timeout)
    server = RemoteTriton(address, configured_header(), credentials)
    with server.running(Path(), ControlMode.EXPLICIT) as running, connect(running.endpoint, limits) as client:
        yield LiveServer(address, running, client, limits)
