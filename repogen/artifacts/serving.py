"""A running Triton server, and the report of a smoke test on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ControlMode(Enum):
    """Triton's ``--model-control-mode``."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


@dataclass(frozen=True)
class ControlHeader:
    """The header that a server requires in requests to its control API; a secret, which is never printed or recorded.

    Attributes:
        key: As in ``--http-restricted-api=APIS:KEY=VALUE`` of tritonserver.
        value: Its value.
    """

    key: str = field(repr=False)
    value: str = field(repr=False)

    @property
    def grpc(self) -> dict[str, str]:
        """The metadata of a gRPC request, in which Triton adds a prefix to the key."""
        return {f"triton-grpc-protocol-{self.key.lower()}": self.value}


@dataclass(frozen=True)
class Credentials:
    """How to connect to a server that requires TLS or authentication; never printed or recorded.

    Attributes:
        tls: Whether to connect with TLS.
        root_certificates: PEM file of the certificates that the server's must be signed by; None for the system's.
        private_key: PEM file of the client's private key; None for no client certificate.
        certificate_chain: PEM file of the client's certificate chain; None for no client certificate.
        headers: Headers of every request, such as ``authorization``; their names are lowercase.
    """

    tls: bool = False
    root_certificates: Path | None = None
    private_key: Path | None = None
    certificate_chain: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


NO_CREDENTIALS = Credentials()
UNKNOWN_RUNTIME = "unknown"
"""``Endpoint.runtime`` of a server that repogen did not start."""


@dataclass(frozen=True)
class Endpoint:
    """The addresses and properties of a ready Triton.

    Attributes:
        grpc: ``host:port``, or ``unix:PATH`` for a server that only this user can reach.
        http: The same; empty when unknown.
        metrics: ``host:port``, or empty when unknown.
        kind: ``embedded``, ``docker``, ``remote``, or the name of a plug-in's server.
        server_version: Version that the server reports, for example ``2.51.0``.
        runtime: Description, for example ``ONNX Runtime 1.19.2 (Python-hosted, CPU)``; ``unknown`` for a remote server.
        sees_files: Whether it reads its repository from this machine's disk; a remote server receives the bytes.
        has_gpu: Whether it can serve KIND_GPU.
        control: Header that requests to the control API need; None when they need none.
        credentials: How to connect.
    """

    grpc: str
    http: str
    metrics: str
    kind: str
    server_version: str
    runtime: str
    sees_files: bool
    has_gpu: bool
    control: ControlHeader | None = field(default=None, repr=False)
    credentials: Credentials = field(default=NO_CREDENTIALS, repr=False)

    @property
    def description(self) -> str:
        """Its version, kind and runtime, such as ``Triton 2.51.0 (remote)``; an unknown runtime is left out."""
        runtime = "" if self.runtime == UNKNOWN_RUNTIME else f", {self.runtime}"
        return f"Triton {self.server_version} ({self.kind}{runtime})"


class RunningTriton(Protocol):
    """A started Triton."""

    @property
    def endpoint(self) -> Endpoint:
        """Its addresses and properties."""

    def alive(self) -> bool:
        """Return whether the server process (or the remote server) still responds."""

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log; empty for a remote server."""

    def provide(self, requirements: Sequence[str]) -> None:
        """Make packages, each ``name==version``, importable by the models that are loaded from now on.

        Raises:
            ServerError: They cannot be installed.
        """


@dataclass(frozen=True)
class SmokeCheck:
    """The result of one check.

    Attributes:
        name: For example ``golden batch=2`` or ``rejects batch 33``.
        passed: Whether it passed; a warning counts as passed.
        detail: Numbers, or the reason of a failure.
        warning: Whether ``detail`` should be read although the check passed.
        max_abs_diff: Largest difference from PyTorch's golden outputs; None for a check of something else.
    """

    name: str
    passed: bool
    detail: str = ""
    warning: bool = False
    max_abs_diff: float | None = None


@dataclass(frozen=True)
class Latency:
    """Client-side latency of single-row requests, in milliseconds."""

    p50: float
    p95: float
    p99: float
    requests: int


@dataclass(frozen=True)
class SmokeReport:
    """The results of one smoke test.

    Attributes:
        model: Model name.
        version: Tested version; 0 when the model could not be read.
        server: Kind of the server.
        server_version: tritonserver's version.
        runtime: Description of the runtime.
        checks: Every check, in order.
        overrides: Changed fields of the tested config, one line each.
        latency: Latency of single-row requests; None when none were sent.
    """

    model: str
    version: int
    server: str
    server_version: str
    runtime: str
    checks: tuple[SmokeCheck, ...]
    overrides: tuple[str, ...] = ()
    latency: Latency | None = None

    @property
    def passed(self) -> bool:
        """Whether at least one check ran and none failed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def max_abs_diff(self) -> float | None:
        """Largest difference of the server's outputs from PyTorch's golden outputs; None when none was compared."""
        differences = [check.max_abs_diff for check in self.checks if check.max_abs_diff is not None]
        return max(differences, default=None)
