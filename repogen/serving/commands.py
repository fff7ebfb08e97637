"""The commands ``repogen serve`` and ``repogen server``, and the target release of a repository."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import RepogenError, ServerError, SpecError
from repogen.files import is_directory
from repogen.repository.layout import latest_version, models_of
from repogen.repository.manifest import read_manifest
from repogen.serving.embedded import EmbeddedTriton
from repogen.serving.process import load_failures, require_loaded
from repogen.serving.servers import open_triton
from repogen.targets import DEFAULT_RELEASE, find_target, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import RunningTriton
    from repogen.targets import Target

_POLL_SECONDS = 0.5
_LOG_LINES = 100_000


@contextmanager
def serve(repository: Path, server: str, *, poll: bool, progress: Progress) -> Iterator[RunningTriton]:
    """Run a Triton on a repository while the block runs.

    Args:
        repository: Any model repository.
        server: ``embedded``, ``docker``, or another server that starts on this machine.
        poll: Load and unload models when the repository changes.
        progress: Receives progress events, and a note for each model that is not served, with the reason.

    Raises:
        SpecError: The repository does not exist.
        ServerError: The server cannot be started, or it loaded no model and does not poll.
    """
    check_models(repository, ())
    mode = ControlMode.POLL if poll else ControlMode.NONE
    with open_triton(server, recorded_target(repository), repository, mode, progress) as triton:
        if not poll:
            require_loaded(triton.log_tail(_LOG_LINES))
        _report_failures(triton, progress, {})
        yield triton


def _report_failures(triton: RunningTriton, progress: Progress, reported: dict[str, str]) -> dict[str, str]:
    """Note each failure to load that was not reported; return all failures."""
    failures = load_failures(triton.log_tail(_LOG_LINES))
    for name, reason in failures.items():
        if reported.get(name) != reason:
            progress.note(name, f"not loaded: {reason}")
    return failures


def recorded_target(repository: Path) -> Target:
    """Return the newest target release that the repository's manifests name; the default when none names one.

    Manifests that cannot be read are skipped, so that one damaged model does not prevent serving the others.
    """
    recorded: list[Target] = []
    for name in models_of(repository):
        with suppress(OSError, RepogenError):
            model = repository / name
            version = latest_version(model)
            release = "" if version is None else read_manifest(model / str(version)).provenance.target
            target = find_target(release)
            recorded += [target] if target is not None else []
    return max(recorded, key=lambda target: target.release, default=targets()[DEFAULT_RELEASE])


def check_models(repository: Path, names: tuple[str, ...]) -> None:
    """Raise SpecError when a repository, or one of its models ``names``, does not exist."""
    if not is_directory(repository):
        raise SpecError(
            f"{repository} is not a directory",
            "build a repository with `repogen build`, or pass the path of another one",
            code="repository.missing",
        )
    missing_models = [name for name in names if not is_directory(repository / name)]
    if missing_models:
        existing = ", ".join(models_of(repository)) or "none"
        raise SpecError(
            f"{repository} has no model {', '.join(missing_models)}",
            f"models of the repository: {existing}",
            code="repository.no-such-model",
        )


def wait(triton: RunningTriton, progress: Progress) -> None:
    """Return when Ctrl-C is pressed; note each model that fails to load in the meantime.

    Raises:
        ServerError: The server exited.
    """
    reported = load_failures(triton.log_tail(_LOG_LINES))
    try:
        while triton.alive():
            time.sleep(_POLL_SECONDS)
            reported = _report_failures(triton, progress, reported)
    except KeyboardInterrupt:
        return
    raise ServerError(f"Triton exited; its log ends with:\n{triton.log_tail()}", code="server.ended")


def install_server(wheels: Path | None, progress: Progress, release: str = DEFAULT_RELEASE) -> Path:
    """Install the embedded Triton for a target; return its directory.

    Args:
        wheels: Directory of wheels for a machine without a network; None downloads them.
        progress: Receives progress events of downloads.
        release: The target release, which decides the version of ONNX Runtime.

    Raises:
        SpecError: The release is unknown.
        ServerError: It cannot run here, or a wheel is not available.
    """
    target = find_target(release)
    if target is None:
        raise SpecError(f"release {release!r} is unknown", f"one of {', '.join(targets())}", code="check.release")
    server = EmbeddedTriton(target, progress)
    server.preflight()
    server.install(wheels)
    return server.installed_path() or server_path()


def server_path() -> Path:
    """Return the directory of the embedded Triton.

    Raises:
        ServerError: It is not installed.
    """
    path = EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent()).installed_path()
    if path is None:
        raise ServerError("the embedded Triton is not installed", "repogen server install", code="server.missing")
    return path


def server_version() -> str:
    """Return the versions of Triton and ONNX Runtime that the embedded Triton runs for the default target."""
    return EmbeddedTriton(targets()[DEFAULT_RELEASE], Silent()).versions()
