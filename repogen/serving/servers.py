"""A running Triton: embedded, in NVIDIA's container, or one that already runs; nothing above knows which."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from repogen.errors import ServerError
from repogen.serving import remote

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Requirement, TritonServer
    from repogen.targets import Target

__all__ = ["embedded_requirements", "embedded_version", "install_embedded", "installed_path", "server"]


def server(kind: str, target: Target, progress: Progress) -> TritonServer:
    """Return the server that ``--server`` names; nothing is installed or started yet.

    Args:
        kind: ``embedded``, ``docker`` or ``HOST:PORT``.
        target: Release whose ONNX Runtime (embedded) or container (docker) is used.
        progress: Told of installation.

    Raises:
        ServerError: ``kind`` is none of these.
    """
    from repogen.serving import docker, embedded  # noqa: PLC0415 - they bring filelock and more: not for `--help`

    if kind == "embedded":
        return embedded.EmbeddedTriton(target, progress)
    if kind == "docker":
        return docker.DockerTriton(target, progress, gpu=shutil.which("nvidia-smi") is not None)
    if remote.is_address(kind):
        return remote.RemoteTriton(kind)
    raise ServerError(
        f"--server {kind!r} is none of embedded, docker, HOST:PORT",
        "a remote one is given with its gRPC port, for example localhost:8001",
        code="server.kind",
    )


def install_embedded(target: Target, progress: Progress, source: Path | None = None) -> Path:
    """Install the embedded Triton for ``target`` unless it is; return where it lies.

    Args:
        target: Whose ONNX Runtime is installed.
        progress: Told of steps and downloads.
        source: Folder with the wheels, for a machine without an index; None downloads them through pip.

    Raises:
        ServerError: It cannot run on this machine, or a wheel cannot be had.
    """
    from repogen.serving import embedded, install  # noqa: PLC0415 - as in `server`

    embedded.EmbeddedTriton(target, progress).preflight()
    installation = install.locate(target.onnxruntime)
    install.install(installation, progress, source)
    return installation.root


def installed_path(target: Target) -> Path | None:
    """Return the directory of the embedded Triton for ``target``, or None when it is not installed."""
    from repogen.serving import install  # noqa: PLC0415 - as in `server`

    try:
        installation = install.locate(target.onnxruntime)
    except ServerError:
        return None
    return installation.root if installation.complete else None


def embedded_version(target: Target) -> str:
    """Return what the embedded Triton is, for people: ``tritonserver 2.51.0, ONNX Runtime 1.19.2``."""
    from repogen.serving import wheel_lock as lock  # noqa: PLC0415 - as in `server`

    return f"tritonserver {lock.shipped().server_version}, ONNX Runtime {target.onnxruntime}"


def embedded_requirements(target: Target) -> list[Requirement]:
    """Return what the embedded Triton needs of this machine, each met or with the command that mends it."""
    from repogen.serving import requirements  # noqa: PLC0415 - as in `server`

    return requirements.embedded(target)
