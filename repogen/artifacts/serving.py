"""A running Triton as the steps see it, and what smoke tests say of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path


class ControlMode(Enum):
    """Triton's ``--model-control-mode``."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


@dataclass(frozen=True)
class Endpoint:
    """Where a ready Triton listens, and what it is.

    Attributes:
        grpc: ``host:port``.
        http: ``host:port``, or empty when unknown.
        metrics: ``host:port``, or empty when unknown.
        kind: ``embedded``, ``docker`` or ``remote``.
        server_version: As the server reports it, for example ``2.51.0``.
        runtime: For people, for example ``ONNX Runtime 1.19.2 (Python-hosted, CPU)``; ``unknown`` for a remote one.
        sees_files: Whether it reads the repository that it was started on from this machine's disk; a remote one
            is sent the bytes instead.
        has_gpu: Whether it can serve KIND_GPU.
    """

    grpc: str
    http: str
    metrics: str
    kind: str
    server_version: str
    runtime: str
    sees_files: bool
    has_gpu: bool


class RunningTriton(Protocol):
    """A Triton that is ready, or was."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""

    def alive(self) -> bool:
        """Whether the server process (or the remote server) still answers."""

    def log_tail(self, lines: int = 40) -> str:
        """Last lines of the server's log; empty for a remote one."""

    def provide(self, requirements: Sequence[str]) -> None:
        """Make packages, each ``name==version``, importable by the models that are loaded from now on.

        Raises:
            ServerError: They can't be installed.
        """


class TritonServer(Protocol):
    """A way to have a Triton: embedded, docker, or one that already runs."""

    def preflight(self) -> None:
        """Raise ServerError, with the remedy, when this server cannot be had on this machine; installs nothing."""

    def install(self) -> None:
        """Make it startable (downloads on first use, with progress); does nothing when it is."""

    def running(
        self, repository: Path, mode: ControlMode, *, strict: bool = False
    ) -> AbstractContextManager[RunningTriton]:
        """Start it on ``repository``, wait until it is live, stop it by its PID on exit.

        Args:
            repository: The model repository.
            mode: Triton's model control mode.
            strict: Let Triton complete nothing that a config.pbtxt leaves out.
        """


@dataclass(frozen=True)
class Requirement:
    """Something a server needs of this machine.

    Attributes:
        name: For example ``glibc``.
        met: Whether it is there.
        found: What was found, and what is needed.
        remedy: The command or advice that mends it.
    """

    name: str
    met: bool
    found: str
    remedy: str


@dataclass(frozen=True)
class SmokeCheck:
    """One claim that was put to the server.

    Attributes:
        name: For example ``golden batch=2`` or ``refuses batch 33``.
        passed: The verdict; a warning counts as passed.
        detail: Figures or the reason.
        warning: Whether ``detail`` deserves a person's look although it passed.
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
    """What a real Triton answered.

    Attributes:
        model: Model name.
        version: Version that was asked.
        server: Kind of the server.
        server_version: tritonserver's version.
        runtime: Runtime behind it.
        checks: Every claim, in order.
        overrides: Fields that the private smoke config changed, one line each.
        latency: Of single-row requests; None when none were sent.
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
        """True when at least one check ran and none failed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def max_abs_diff(self) -> float | None:
        """Largest difference of the server's answers from PyTorch's golden outputs; None when none was compared."""
        found = [check.max_abs_diff for check in self.checks if check.max_abs_diff is not None]
        return max(found, default=None)
