"""A running Triton server at HOST:PORT (gRPC); repogen neither starts nor stops it."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pydantic import Field, field_validator
from tritonclient.utils import InferenceServerException

from repogen.artifacts.serving import NO_CREDENTIALS, UNKNOWN_RUNTIME, ControlMode, Endpoint
from repogen.errors import ServerError
from repogen.serving import control
from repogen.serving.connection import excerpt, open_client
from repogen.serving.interface import ServerOptions, ServerPlugin
from repogen.serving.servers import is_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tritonclient.grpc import InferenceServerClient

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import ControlHeader, Credentials
    from repogen.targets import Target

_CONNECT_SECONDS = 3.0
_PROBE_SECONDS = 5.0
_START_IT = "start it, and check its gRPC port (8001 by default)"
_OTHER_PROTOCOL = (
    "the port is not a gRPC port, or requires TLS: by default, Triton's gRPC port is 8001, and 8000 and 8002 are HTTP; "
    "for a server with TLS, use --tls, or --tls-root with its root certificates"
)
_HINTS = {
    "Socket closed": _OTHER_PROTOCOL,
    "parsing HTTP/2": _OTHER_PROTOCOL,
    "handshake": "check that the server uses TLS, and the files of --tls-root, --tls-key and --tls-cert",
    "UNAUTHENTICATED": "pass its header with --header KEY=VALUE",
}
"""What to do, by a part of gRPC's message."""


@dataclass(frozen=True)
class RunningRemote:
    """A remote Triton that was live when it was opened."""

    endpoint: Endpoint
    client: InferenceServerClient = field(repr=False)

    def alive(self) -> bool:
        """Return whether it still responds."""
        try:
            return bool(self.client.is_server_live(client_timeout=_PROBE_SECONDS))
        except InferenceServerException:
            return False

    def log_tail(self, lines: int = 40) -> str:  # noqa: ARG002 - a remote log is not readable
        """Return an empty text: the log is on the server's machine."""
        return ""

    def provide(self, requirements: Sequence[str]) -> None:
        """Do nothing: a model that requires a package that the server lacks does not load."""


@dataclass(frozen=True)
class RemoteTriton:
    """A Triton at ``address``, which does not read this machine's files.

    Attributes:
        address: ``HOST:PORT`` or ``unix:PATH`` of the gRPC service.
        header: Header that its control API requires; None if it requires none.
        credentials: How to connect.
    """

    address: str
    header: ControlHeader | None = field(default=None, repr=False)
    credentials: Credentials = field(default=NO_CREDENTIALS, repr=False)

    def preflight(self) -> None:
        """Raise ServerError when no Triton responds at the address; waits for a limited time."""
        with self._connect():
            pass

    def require_loads(self) -> None:
        """Raise SmokeError when the server does not load models on request, or requires a header for it.

        Unloads a model that does not exist, which a server in explicit mode accepts, and any other rejects. Measured on
        tritonserver 2.51.
        """
        header = None if self.header is None else self.header.grpc
        with contextlib.closing(open_client(self.address, self.credentials)) as client:
            try:
                client.unload_model(f"repogen-probe-{uuid.uuid4().hex}", header, client_timeout=_CONNECT_SECONDS)
            except InferenceServerException as error:
                if (refusal := control.refusal(str(error.message()), self.header)) is not None:
                    raise refusal from error

    def with_credentials(self, credentials: Credentials) -> RemoteTriton:
        """Return the same server, reached with these credentials."""
        return replace(self, credentials=credentials)

    def install(self) -> None:
        """Do nothing: the server runs."""

    @contextlib.contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[RunningRemote]:
        """Yield the server; the arguments have no effect on it.

        Raises:
            SpecError: A file of the credentials cannot be read.
            ServerError: No Triton responds at the address.
        """
        del repository, mode, strict
        with self._connect() as running:
            yield running

    @contextlib.contextmanager
    def _connect(self) -> Iterator[RunningRemote]:
        client = open_client(self.address, self.credentials)
        try:
            try:
                live = client.is_server_live(client_timeout=_CONNECT_SECONDS)
                metadata = client.get_server_metadata(client_timeout=_CONNECT_SECONDS)
            except InferenceServerException as error:
                raise self._unreachable_error(excerpt(str(error.message()))) from error
            if not live:
                raise self._unreachable_error("it is not live")
            endpoint = Endpoint(
                *(self.address, "", "", "remote", excerpt(str(metadata.version), 40), UNKNOWN_RUNTIME),
                sees_files=False,
                has_gpu=True,
                control=self.header,
                credentials=self.credentials,
            )
            yield RunningRemote(endpoint, client)
        finally:
            client.close()

    def _unreachable_error(self, reason: str) -> ServerError:
        hint = next((hint for text, hint in _HINTS.items() if text in reason), _START_IT)
        return ServerError(f"no Triton responds at {self.address} (gRPC): {reason}", hint, code="server.remote")


class RemoteOptions(ServerOptions):
    """Options of ``--server remote:ADDRESS``.

    Attributes:
        address: ``HOST:PORT`` or ``unix:PATH`` of the gRPC service.
    """

    address: str = Field(examples=["HOST:PORT"])

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if not is_address(value):
            raise ValueError(f"{value!r} is not HOST:PORT or unix:PATH")
        return value


def _create(options: RemoteOptions, target: Target, progress: Progress) -> RemoteTriton:  # noqa: ARG001 - not used
    return RemoteTriton(options.address, control.configured_header())


PLUGIN = ServerPlugin(RemoteOptions, _create)
