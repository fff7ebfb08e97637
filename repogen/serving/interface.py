"""The extension point ``repogen.servers``: what a kind of Triton server provides.

An entry point of this group names a ``ServerPlugin``. Its name is the value of ``--server``, and the text after a colon
holds its options. ``--server cluster:namespace=ml,port=8001`` opens the server of this plug-in::

    class ClusterOptions(ServerOptions):
        namespace: str
        port: int = 8001


    def create(options: ClusterOptions, target: Target, progress: Progress) -> TritonServer:
        return ClusterTriton(options.namespace, options.port)


    PLUGIN = ServerPlugin(ClusterOptions, create)

with this line in the package's pyproject.toml::

    [project.entry-points."repogen.servers"]
    cluster = "my_package.cluster:PLUGIN"

A server whose control API requires a header sets ``control`` of its ``Endpoint``; repogen then sends the header with
each request that loads or unloads a model. ``repogen.serving.control.configured_header`` returns the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from repogen.artifacts.serving import ControlHeader, ControlMode, Credentials, Endpoint, RunningTriton

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.targets import Target

__all__ = [
    "AcceptsCredentials",
    "ControlHeader",
    "ControlMode",
    "Credentials",
    "Endpoint",
    "RunningTriton",
    "ServerOptions",
    "ServerPlugin",
    "StartedElsewhere",
    "TritonServer",
]


class ServerOptions(BaseModel):
    """Options of a server: the ``KEY=VALUE`` pairs after its name, separated by commas.

    A base class for servers without options.

    Attributes:
        first_without_key: Whether the first pair may be a value alone, which is then that of the first field.
    """

    first_without_key: ClassVar[bool] = True

    model_config = ConfigDict(extra="forbid", frozen=True)


class TritonServer(Protocol):
    """A way to run or reach a Triton server; constructing one installs and starts nothing."""

    def preflight(self) -> None:
        """Check that the server can run on this machine; installs nothing.

        Raises:
            ServerError: It cannot; the hint says what to do.
        """

    def install(self) -> None:
        """Install the server if it is not installed.

        Raises:
            ServerError: The installation failed.
        """

    def running(
        self, repository: Path, mode: ControlMode, *, strict: bool = False
    ) -> AbstractContextManager[RunningTriton]:
        """Start the server, wait until it is live, and stop it on exit.

        Args:
            repository: The model repository to serve.
            mode: Triton's model control mode.
            strict: Disable Triton's auto-completion of config.pbtxt.

        Raises:
            ServerError: The server exited, or was not live in time.
        """


@runtime_checkable
class StartedElsewhere(Protocol):
    """A TritonServer that repogen does not start, and that may therefore be in any control mode."""

    def require_loads(self) -> None:
        """Check within seconds that the server loads models on request; loads nothing.

        A build calls it before it starts any other work.

        Raises:
            SmokeError: It does not, or it requires a header.
        """


@runtime_checkable
class AcceptsCredentials(Protocol):
    """A TritonServer that can be reached with TLS and headers."""

    def with_credentials(self, credentials: Credentials) -> TritonServer:
        """Return the same server, reached with these credentials.

        Args:
            credentials: The values of ``--tls``, ``--tls-root``, ``--tls-key``, ``--tls-cert`` and ``--header``.
        """


OptionsT = TypeVar("OptionsT", bound=ServerOptions)


@dataclass(frozen=True)
class ServerPlugin(Generic[OptionsT]):
    """A kind of server, as an entry point of ``repogen.servers`` names it.

    Attributes:
        options: Model that validates the options.
        create: Returns the server for the options, the target release and a receiver of progress events.
    """

    options: type[OptionsT]
    create: Callable[[OptionsT, Target, Progress], TritonServer]
