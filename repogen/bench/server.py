"""Serves one version of a model for a benchmark, with its own config or with another one."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repogen.artifacts.serving import NO_CREDENTIALS, ControlMode
from repogen.errors import BenchError
from repogen.serving.process import RunningProcess
from repogen.serving.servers import open_triton, prepare_server
from repogen.smoke.grpc_client import connect
from repogen.smoke.inference import Limits, NoResponseError, RefusedError
from repogen.smoke.preparation import loaded, prepare_published
from repogen.worker.process_tree import peak_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials, Endpoint, RunningTriton
    from repogen.smoke.grpc_client import GrpcClient
    from repogen.smoke.preparation import PreparedModel
    from repogen.targets import Target
    from repogen.triton_config.text.parse import ModelConfig

_EMBEDDED = "embedded"
_PORTS = "own_control=true"


@dataclass(frozen=True)
class ServerChoice:
    """The server to measure on.

    Attributes:
        kind: Value of ``--server``.
        target: Release to serve.
        progress: Receives progress events.
        credentials: TLS and headers of a server at ``HOST:PORT``.
    """

    kind: str
    target: Target
    progress: Progress
    credentials: Credentials = NO_CREDENTIALS


@dataclass(frozen=True)
class ServedModel:
    """A model on a running server.

    Attributes:
        triton: The server.
        model: The model with the config that the server loaded.
        client: A connection to the server.
    """

    triton: RunningTriton
    model: PreparedModel
    client: GrpcClient

    @property
    def version(self) -> int:
        """The newest version that is served."""
        return self.model.versions[-1]

    @property
    def endpoint(self) -> Endpoint:
        """Addresses of the server."""
        return self.triton.endpoint

    @property
    def memory_bytes(self) -> int:
        """Sum of the largest resident memory of each of the server's processes; 0 for a server elsewhere."""
        if not isinstance(self.triton, RunningProcess) or self.endpoint.kind != _EMBEDDED:
            return 0
        return peak_memory(self.triton.process.supervisor.pid)

    def death(self, error: BenchError) -> BenchError:
        """Return the error to report: that of a server that exited, or the same error if it runs."""
        if self.triton.alive():
            return error
        return BenchError(
            f"the Triton server exited during the measurement:\n{self.triton.log_tail(10)}",
            "see its log for the cause; a common one is lack of memory",
            code="bench.server-died",
            details=self.triton.log_tail(200),
        )


@contextmanager
def serve_model(
    choice: ServerChoice, directory: Path, config: ModelConfig | None = None, *, strict: bool = False
) -> Iterator[ServedModel]:
    """Start a server and load a model of a repository while the block runs; the repository is not changed.

    Args:
        choice: The server.
        directory: The model's directory.
        config: Config to serve it with, instead of config.pbtxt.
        strict: Disable Triton's auto-completion of the config.

    Raises:
        SpecError: The server or its options are wrong.
        BenchError: The server does not load the model.
        ServerError: It cannot be started or reached.
        RepogenError: config.pbtxt cannot be parsed.
    """
    name, _, options = choice.kind.partition(":")
    own = ":".join((name, ",".join(filter(None, (options, _PORTS)))))
    kind = own if name == _EMBEDDED else choice.kind
    server = prepare_server(kind, choice.target, choice.progress, credentials=choice.credentials)
    with (
        open_triton(server, directory.parent, ControlMode.EXPLICIT, choice.progress, strict=strict) as triton,
        connect(triton.endpoint, Limits()) as client,
    ):
        model = prepare_published(triton.endpoint, directory)
        if config is not None:
            model = replace(model, config=config, replaces_config=True)
        if not model.versions:
            raise BenchError(f"{directory.name} has no version that Triton serves", code="bench.not-published")
        served = ServedModel(triton, model, client)
        try:
            # a remote server serves its own copy
            with loaded(triton, client, model) if triton.endpoint.sees_files else nullcontext():
                yield served
        except (RefusedError, NoResponseError) as error:
            message = f"Triton {triton.endpoint.server_version} does not serve {directory.name}: {error}"
            failure = BenchError(message, "`repogen smoke` tests the model", code="bench.not-served")
            raise served.death(failure) from error
