"""NVIDIA's container of the target release: the production server itself, on machines with Docker."""

from __future__ import annotations

import contextlib
import csv
import shutil
import subprocess
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError, SpecError
from repogen.serving import control, process
from repogen.serving.interface import ServerPlugin
from repogen.serving.view import View, following

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.progress import Progress
    from repogen.targets import Target

_ALTERNATIVES = "use another --server"
_PROBE_SECONDS = 20.0
_PULL_SECONDS = 7200.0
_MOUNT = "/models"
_REPOSITORY_MOUNT = "/repository"
_SOCKETS_MOUNT = "/run/repogen"
# The container's user differs from this one, who must be able to write to the sockets. Their directory is private.
_WITH_OPEN_SOCKETS = ("bash", "-c", 'umask 0; exec "$@"', "tritonserver")


@dataclass(frozen=True)
class DockerTriton:
    """NVIDIA's container of one target release.

    Attributes:
        target: Release of the image.
        progress: Receives progress events of the pull.
        gpu: Whether to pass the machine's GPUs to the container.
        ports: Its ports on this machine.
    """

    target: Target
    progress: Progress
    gpu: bool = False
    ports: process.PortOptions = process.FREE_PORTS

    def preflight(self) -> None:
        """Raise ServerError when this user has no access to a Docker daemon; pulls nothing."""
        if shutil.which("docker") is None:
            raise ServerError(
                "docker is not on PATH",
                f"install Docker Engine (`apt-get install docker.io`), or {_ALTERNATIVES}",
                code="server.docker",
            )
        outcome = _docker("version", "--format", "{{.Server.Version}}")
        if outcome.returncode != 0:
            raise ServerError(
                f"the Docker daemon does not respond: {outcome.stderr.strip()}",
                f"start it, and add your user to the group `docker`; or {_ALTERNATIVES}",
                code="server.docker",
            )

    def install(self) -> None:
        """Pull the image, several gigabytes, unless Docker has it.

        Raises:
            ServerError: Docker is not available, or the image cannot be pulled.
        """
        self.preflight()
        name = image(self.target)
        if _docker("image", "inspect", name).returncode == 0:
            return
        self.progress.step("", f"pulling {name}")
        outcome = _docker("pull", "--quiet", name, seconds=_PULL_SECONDS)
        if outcome.returncode != 0:
            raise ServerError(f"cannot pull {name}: {outcome.stderr.strip()}", _ALTERNATIVES, code="server.docker")

    @contextlib.contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[process.RunningProcess]:
        """Start the container on ``repository``, wait until it is live, and stop it on exit.

        Raises:
            ServerError: The image cannot be pulled, or the server exited while it started.
        """
        self.install()
        view: View | None = None

        def command(launch: process.Launch) -> list[str]:
            nonlocal view
            mounts = {_MOUNT: repository.absolute()}
            if launch.ports is not None:
                require_closed(launch)
            if mode is not ControlMode.EXPLICIT:
                view = View(repository.absolute(), launch.run_dir, Path(_REPOSITORY_MOUNT), self.progress)
                mounts = {_MOUNT: view.root, _REPOSITORY_MOUNT: repository.absolute()}
            options = process.triton_options(launch, mode, self.target.server_version, strict=strict)
            return docker_command(self.target, launch, mounts, options, gpu=self.gpu)

        with process.started(command, mode, self.ports) as server, following(view, mode):
            runtime = f"ONNX Runtime {self.target.onnxruntime} (NVIDIA's backend)"
            yield process.RunningProcess(server.endpoint("docker", runtime, has_gpu=self.gpu), server)


def image(target: Target) -> str:
    """Return the name of NVIDIA's image of a release.

    >>> from repogen.targets import targets
    >>> image(targets()["24.10"])
    'nvcr.io/nvidia/tritonserver:24.10-py3'
    """
    return f"nvcr.io/nvidia/tritonserver:{target.release}-py3"


def docker_command(
    target: Target, launch: process.Launch, mounts: Mapping[str, Path], options: list[str], *, gpu: bool
) -> list[str]:
    """Return the command line that runs NVIDIA's container in the foreground.

    The directories ``mounts`` are mounted read-only and the ports are published on 127.0.0.1 only; without ports, the
    sockets of the server are in a directory of this user. ``docker run`` forwards SIGTERM to the server, and ``--rm``
    removes the container.
    """
    return [
        *("docker", "run", "--rm", "--init", f"--name={launch.identity}", "--shm-size=1g"),
        *(("--gpus=all",) if gpu else ()),
        *(_mount(source, mount, "readonly") for mount, source in mounts.items()),
        *_reachable(target, launch),
        f"--model-repository={_MOUNT}",
        "--exit-timeout-secs=3",
        *options,
    ]


def _mount(source: Path, target: str, *options: str) -> str:
    """Return Docker's option that mounts a directory, whose name may contain commas and quotes.

    >>> _mount(Path("/a,source=/etc"), "/models", "readonly")
    '--mount=type=bind,"source=/a,source=/etc",target=/models,readonly'
    """
    row = StringIO()
    csv.writer(row, lineterminator="").writerow(("type=bind", f"source={source}", f"target={target}", *options))
    return f"--mount={row.getvalue()}"


def _reachable(target: Target, launch: process.Launch) -> list[str]:
    """Return the rest of Docker's options, the image, and the server with the options for its addresses."""
    if launch.ports is None:
        mount = _mount(launch.sockets, _SOCKETS_MOUNT)
        return [mount, image(target), *_WITH_OPEN_SOCKETS, "tritonserver", *process.socket_options(_SOCKETS_MOUNT)]
    port_pairs = ((launch.ports.grpc, 8001), (launch.ports.http, 8000), (launch.ports.metrics, 8002))
    published = (f"--publish={process.LOCALHOST}:{outside}:{inside}" for outside, inside in port_pairs)
    return [*published, image(target), "tritonserver"]


def require_closed(launch: process.Launch) -> None:
    """Reject the user's own header, which other users could read in the command lines of Docker and the container.

    Raises:
        SpecError: There is one.
    """
    if control.is_sendable(launch.control):
        raise SpecError(
            "a control header cannot be kept secret with --server docker: command lines are visible to other users",
            f"use --server embedded, or start without {control.VARIABLE}",
            code="server.control-header",
        )


def _docker(*arguments: str, seconds: float = _PROBE_SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["docker", *arguments],  # noqa: S607 - the user's own docker, from PATH
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(["docker", *arguments], 1, "", str(error))


def _create(options: process.PortOptions, target: Target, progress: Progress) -> DockerTriton:
    return DockerTriton(target, progress, gpu=shutil.which("nvidia-smi") is not None, ports=options)


PLUGIN = ServerPlugin(process.PortOptions, _create)
