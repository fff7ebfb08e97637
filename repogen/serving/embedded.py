"""The embedded Triton: the real tritonserver on this machine, ONNX Runtime hosted by Triton's Python backend."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode, Endpoint
from repogen.errors import ServerError
from repogen.serving import environment, install, process, requirements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.serving.install import Installation
    from repogen.targets import Target

_UNSET = ("PYTHONHOME", "PYTHONPATH", "LD_PRELOAD")


@dataclass(frozen=True)
class RunningEmbedded:
    """An embedded Triton that is live."""

    endpoint: Endpoint
    process: process.ServerProcess
    installation: Installation
    progress: Progress

    def alive(self) -> bool:
        """Whether the server process still runs."""
        return self.process.alive()

    def log_tail(self, lines: int = 40) -> str:
        """Last lines of the server's log."""
        return self.process.log_tail(lines)

    def provide(self, requirements: Sequence[str]) -> None:
        """Make packages importable by the models that are loaded from now on."""
        environment.provide(self.installation, self.process.launch.run_dir, requirements, self.progress)


@dataclass(frozen=True)
class EmbeddedTriton:
    """The embedded Triton for one target release.

    Attributes:
        target: Whose ONNX Runtime it runs; the server itself is always the locked one.
        progress: Told of installation.
    """

    target: Target
    progress: Progress

    def preflight(self) -> None:
        """Raise ServerError with every unmet requirement and its remedy; installs nothing."""
        unmet = [each for each in requirements.embedded(self.target) if not each.met]
        if unmet:
            raise ServerError(
                "the embedded Triton cannot run here: " + "; ".join(each.found for each in unmet),
                "; ".join(dict.fromkeys(each.remedy for each in unmet)),
                code="server.requirements",
            )

    def install(self) -> None:
        """Install it unless it is; takes a download of about 90 MB the first time."""
        install.install(self._installation(), self.progress)

    @contextlib.contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[RunningEmbedded]:
        """Install if needed, start on ``repository``, wait until live, and stop on exit.

        Raises:
            ServerError: It cannot be installed, or ended while it started; the log's tail is in the message.
        """
        installation = self._installation()
        install.install(installation, self.progress)

        def prepared(launch: process.Launch) -> list[str]:
            environment.lay_out(installation, launch.run_dir)
            environment.provide(installation, launch.run_dir, environment.required_by(repository), self.progress)
            served = _served_path(repository.absolute(), launch.run_dir)
            return [
                *_environment(installation, launch),
                *server_command(installation, launch, served, mode, strict=strict),
            ]

        with process.started(prepared) as server:
            ports = server.launch.ports
            grpc, http, metrics = (f"{process.LOCALHOST}:{port}" for port in (ports.grpc, ports.http, ports.metrics))
            runtime = f"ONNX Runtime {installation.onnxruntime} (Python-hosted, CPU)"
            endpoint = Endpoint(
                grpc, http, metrics, "embedded", server.version, runtime, sees_files=True, has_gpu=False
            )
            yield RunningEmbedded(endpoint, server, installation, self.progress)

    def _installation(self) -> Installation:
        return install.locate(self.target.onnxruntime)


def server_command(
    installation: Installation, launch: process.Launch, repository: Path, mode: ControlMode, *, strict: bool = False
) -> list[str]:
    """Return tritonserver's argv: on 127.0.0.1 only, without GPU, quick to stop.

    In control mode ``none`` a model that does not load ends the server; in the others it is that model's error.
    Strict, it completes no config: each load is about a second shorter, which the Python backend takes for it.
    """
    ports = launch.ports
    exit_on_error = "true" if mode is ControlMode.NONE else "false"
    return [
        str(installation.server / "bin" / "tritonserver"),
        f"--id={launch.identity}",
        f"--model-repository={repository}",
        f"--backend-directory={installation.backends}",
        f"--backend-config=python,shm-region-prefix-name={launch.identity}-",
        f"--model-control-mode={mode.value}",
        f"--exit-on-error={exit_on_error}",
        *(f"--{service}-address={process.LOCALHOST}" for service in ("grpc", "http", "metrics")),
        *(f"--grpc-port={ports.grpc}", f"--http-port={ports.http}", f"--metrics-port={ports.metrics}"),
        "--allow-gpu-metrics=false",
        "--allow-cpu-metrics=false",  # its poll thread would hold up every stop by a second
        "--pinned-memory-pool-byte-size=0",
        "--exit-timeout-secs=1",
        *(("--repository-poll-secs=1",) if mode is ControlMode.POLL else ()),
        *(("--disable-auto-complete-config",) if strict else ()),
    ]


def _environment(installation: Installation, launch: process.Launch) -> list[str]:
    """Return an ``env`` prefix, so that these variables reach the server and not its supervisor."""
    variables = {
        # The stub's Python takes itself for the first python3 on PATH.
        "PATH": f"{launch.run_dir / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": f"{installation.server / 'lib'}:{launch.run_dir / 'lib'}",
        "CUDA_VISIBLE_DEVICES": "-1",
        "REPOGEN_BACKEND_SITE": str(installation.site),
    }
    unset = (part for name in _UNSET for part in ("-u", name))
    return ["env", *unset, *(f"{name}={value}" for name, value in variables.items())]


def _served_path(repository: Path, run_dir: Path) -> Path:
    """Return a path to the repository that the Python backend can take: it passes paths to a shell unquoted."""
    if install.shell_safe(repository):
        return repository
    link = run_dir / "repository"
    link.symlink_to(repository)
    return link
