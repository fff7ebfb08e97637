"""NVIDIA's container of the target release: the production server itself, where Docker is at hand."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode, Endpoint
from repogen.errors import ServerError
from repogen.serving import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.targets import Target

_ELSEWHERE = "or use --server embedded, --server HOST:PORT or --no-smoke"
_PROBE_SECONDS = 20.0
_PULL_SECONDS = 7200.0
_MOUNT = "/models"


@dataclass(frozen=True)
class RunningContainer:
    """A container whose Triton is live."""

    endpoint: Endpoint
    process: process.ServerProcess

    def alive(self) -> bool:
        """Whether the container still runs."""
        return self.process.alive()

    def log_tail(self, lines: int = 40) -> str:
        """Last lines of the container's log."""
        return self.process.log_tail(lines)

    def provide(self, requirements: Sequence[str]) -> None:
        """Do nothing: its image has them or has not, and a model that lacks one does not load."""


@dataclass(frozen=True)
class DockerTriton:
    """NVIDIA's container of one target release.

    Attributes:
        target: Decides the image.
        progress: Told of the pull.
        gpu: Whether to hand the machine's GPUs to the container.
    """

    target: Target
    progress: Progress
    gpu: bool = False

    def preflight(self) -> None:
        """Raise ServerError when there is no Docker that this user may use; pulls nothing."""
        if shutil.which("docker") is None:
            raise ServerError(
                "docker is not on PATH",
                f"install Docker Engine (`apt-get install docker.io`), {_ELSEWHERE}",
                code="server.docker",
            )
        outcome = _docker("version", "--format", "{{.Server.Version}}")
        if outcome.returncode != 0:
            raise ServerError(
                f"the Docker daemon does not answer: {outcome.stderr.strip()}",
                f"start it, and be in the group `docker`; {_ELSEWHERE}",
                code="server.docker",
            )

    def install(self) -> None:
        """Pull the image unless it is there; it has many gigabytes.

        Raises:
            ServerError: No Docker, or the image cannot be pulled.
        """
        self.preflight()
        name = image(self.target)
        if _docker("image", "inspect", name).returncode == 0:
            return
        self.progress.step("", f"pulling {name}")
        outcome = _docker("pull", "--quiet", name, seconds=_PULL_SECONDS)
        if outcome.returncode != 0:
            raise ServerError(f"cannot pull {name}: {outcome.stderr.strip()}", _ELSEWHERE, code="server.docker")

    @contextlib.contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[RunningContainer]:
        """Start the container on ``repository``, wait until live, and stop it on exit.

        Raises:
            ServerError: The image cannot be had, or the server ended while it started.
        """
        self.install()

        def command(launch: process.Launch) -> list[str]:
            return docker_command(self.target, launch, repository.absolute(), mode, gpu=self.gpu, strict=strict)

        with process.started(command) as server:
            ports = server.launch.ports
            grpc, http, metrics = (f"{process.LOCALHOST}:{port}" for port in (ports.grpc, ports.http, ports.metrics))
            runtime = f"ONNX Runtime {self.target.onnxruntime} (NVIDIA's backend)"
            yield RunningContainer(
                Endpoint(grpc, http, metrics, "docker", server.version, runtime, sees_files=True, has_gpu=self.gpu),
                server,
            )


def image(target: Target) -> str:
    """Return NVIDIA's image of a release.

    >>> from repogen.targets import targets
    >>> image(targets()["24.10"])
    'nvcr.io/nvidia/tritonserver:24.10-py3'
    """
    return f"nvcr.io/nvidia/tritonserver:{target.release}-py3"


def docker_command(
    target: Target, launch: process.Launch, repository: Path, mode: ControlMode, *, gpu: bool, strict: bool = False
) -> list[str]:
    """Return the argv that runs NVIDIA's container in the foreground.

    The repository is mounted read-only, the ports are published on 127.0.0.1 only, and ``docker run`` passes SIGTERM on
    to the server; ``--rm`` leaves no container behind.
    """
    ports = launch.ports
    published = ((ports.grpc, 8001), (ports.http, 8000), (ports.metrics, 8002))
    exit_on_error = "true" if mode is ControlMode.NONE else "false"
    return [
        *("docker", "run", "--rm", "--init", f"--name={launch.identity}", "--shm-size=1g"),
        *(("--gpus=all",) if gpu else ()),
        *(f"--publish={process.LOCALHOST}:{outside}:{inside}" for outside, inside in published),
        f"--mount=type=bind,source={repository},target={_MOUNT},readonly",
        image(target),
        "tritonserver",
        f"--id={launch.identity}",
        f"--model-repository={_MOUNT}",
        f"--model-control-mode={mode.value}",
        f"--exit-on-error={exit_on_error}",
        "--exit-timeout-secs=3",
        *(("--repository-poll-secs=1",) if mode is ControlMode.POLL else ()),
        *(("--disable-auto-complete-config",) if strict else ()),
    ]


def _docker(*arguments: str, seconds: float = _PROBE_SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # docker from the PATH: the user's own
            ["docker", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(["docker", *arguments], 1, "", str(error))
