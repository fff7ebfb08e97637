"""A Triton that already runs, at HOST:PORT (gRPC)."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode, Endpoint
from repogen.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tritonclient.grpc import InferenceServerClient

ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*):(?P<port>[0-9]{1,5})", re.ASCII)
_ANSWER_SECONDS = 5.0
_MAX_PORT = 65_535


def is_address(text: str) -> bool:
    """Tell whether ``text`` is ``HOST:PORT``; an IPv6 host stands in brackets.

    >>> [is_address(text) for text in ("triton.internal:8001", "[::1]:8001", "triton", "triton:0", "triton:99999")]
    [True, True, False, False, False]
    """
    match = ADDRESS.fullmatch(text)
    return match is not None and 1 <= int(match["port"]) <= _MAX_PORT


@dataclass(frozen=True)
class RunningRemote:
    """A remote Triton that was live when it was asked."""

    endpoint: Endpoint
    client: InferenceServerClient = field(repr=False)

    def alive(self) -> bool:
        """Whether it still answers."""
        from tritonclient.utils import InferenceServerException  # noqa: PLC0415 - heavy

        try:
            return bool(self.client.is_server_live(client_timeout=_ANSWER_SECONDS))
        except InferenceServerException:
            return False

    def log_tail(self, lines: int = 40) -> str:  # noqa: ARG002 - a remote log is out of reach
        """Return nothing: its log is elsewhere."""
        return ""

    def provide(self, requirements: Sequence[str]) -> None:
        """Do nothing: it has them or has not, and a model that lacks one does not load."""


@dataclass(frozen=True)
class RemoteTriton:
    """A Triton at ``address``; repogen neither starts nor stops it, and it does not see this machine's files."""

    address: str

    def preflight(self) -> None:
        """Raise ServerError when nothing answers there, within a bounded time."""
        with self._connected():
            pass

    def install(self) -> None:
        """Do nothing: it runs already."""

    @contextlib.contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[RunningRemote]:
        """Yield the server as it is.

        Raises:
            ServerError: Nothing answers there, or it is no Triton.
        """
        del repository, mode, strict  # it has its own
        with self._connected() as running:
            yield running

    @contextlib.contextmanager
    def _connected(self) -> Iterator[RunningRemote]:
        from tritonclient.grpc import InferenceServerClient  # noqa: PLC0415 - heavy
        from tritonclient.utils import InferenceServerException  # noqa: PLC0415 - heavy

        client = InferenceServerClient(self.address)
        try:
            try:
                live = client.is_server_live(client_timeout=_ANSWER_SECONDS)
                metadata = client.get_server_metadata(client_timeout=_ANSWER_SECONDS)
            except InferenceServerException as error:
                raise self._down(error.message()) from error
            if not live:
                raise self._down("it is not live")
            endpoint = Endpoint(
                self.address, "", "", "remote", str(metadata.version), "unknown", sees_files=False, has_gpu=True
            )
            yield RunningRemote(endpoint, client)
        finally:
            client.close()

    def _down(self, reason: str) -> ServerError:
        return ServerError(
            f"no Triton answers at {self.address} (gRPC): {reason}",
            "start it, give its gRPC port (8001 by default), or use --server embedded or --no-smoke",
            code="server.remote",
        )
