"""The commands ``repogen serve`` and ``repogen server``, and the target release of a repository."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import RepogenError, ServerError, SpecError
from repogen.files.temporary import temporary_directory
from repogen.repository.ensembles import with_steps
from repogen.repository.inventory import require_any_model, require_models
from repogen.repository.layout import directory_of_step, latest_version, models_of
from repogen.repository.manifest import read_manifest
from repogen.repository.mirror import is_from_registry
from repogen.serving.admission import unexamined_code
from repogen.serving.embedded import EmbeddedTriton
from repogen.serving.install import locate
from repogen.serving.perf_analyzer import install_perf_analyzer
from repogen.serving.process import PortOptions, choose_ports, load_failures, require_loaded
from repogen.serving.served_models import served_models
from repogen.serving.servers import is_address, open_triton, prepare_server
from repogen.serving.view import refusal_reasons
from repogen.targets import DEFAULT_RELEASE, find_target, targets
from repogen.triton_config.text.parse import empty_config, parse_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import RunningTriton
    from repogen.serving.served_models import ServedModel
    from repogen.targets import Target

_POLL_SECONDS = 0.5
LOG_LINES = 100_000
_USUAL_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
_RELOAD = re.compile(r"successfully (?P<event>loaded|unloaded) '(?P<name>[^']+)'(?P<version> version -?[0-9]+)?")
"""Triton's log lines of a model that was loaded or unloaded."""


@contextmanager
def serve(
    repository: Path, server: str, *, models: tuple[str, ...] = (), poll: bool, progress: Progress
) -> Iterator[RunningTriton]:
    """Run a Triton on a repository while the block runs.

    Args:
        repository: Any model repository.
        server: ``embedded``, ``docker``, or another server that starts on this machine, with its options.
        models: Serve only these models, and those that they use; all when empty.
        poll: Load and unload models when the repository changes.
        progress: Receives progress events, and a note for each model that is not served, with the reason.

    Raises:
        SpecError: The repository does not exist, it has no models and ``poll`` is not set, or the server or its options
            are wrong.
        ServerError: The server cannot be started, or it loaded no model and does not poll.
    """
    require_models(repository, models)
    if not poll:
        require_any_model(repository)
    mode, name = ControlMode.POLL if poll else ControlMode.NONE, server.partition(":")[0]
    if name == "remote" or is_address(server):
        raise SpecError(
            f"{server} is already running",
            "its own --model-repository determines what it serves; to start a server here, use --server embedded",
            code="server.kind",
        )
    _note_code(repository, models, progress)
    with (
        _selected(repository, models, name) as selected,
        open_triton(prepare_server(server, recorded_target(repository), progress), selected, mode, progress) as triton,
    ):
        if not poll:
            require_loaded(triton.log_tail(LOG_LINES), _refused(repository, models))
        _report_failures(triton, progress, {})
        yield triton


def _note_code(repository: Path, names: tuple[str, ...], progress: Progress) -> None:
    """Note each model with code that repogen did not build; what cannot be read is reported when it is loaded."""
    for name in sorted(with_steps(repository, names or models_of(repository))):
        with suppress(OSError, RepogenError):
            model = directory_of_step(repository, name)
            if model is None or is_from_registry(model) or refusal_reasons(model):
                continue
            path = model / CONFIG_FILE
            config = parse_file(path, f"{name}/{CONFIG_FILE}") if path.exists() else empty_config()
            if code := unexamined_code(model, config):
                progress.note(name, f"{code}, which repogen did not build: serve it only if you trust it")


@contextmanager
def _selected(repository: Path, names: tuple[str, ...], server: str) -> Iterator[Path]:
    """Yield a repository with links to some models and the models of their steps; the repository itself for none."""
    if not names:
        yield repository
        return
    if server != "embedded":
        raise SpecError("--model works with the embedded server only", "omit it", code="server.options")
    with temporary_directory() as directory:
        for name in with_steps(repository, names):
            if (path := directory_of_step(repository, name)) is not None:
                (directory / name).symlink_to(path.absolute())
        yield directory


def with_ports(server: str, ports: Mapping[str, int | None]) -> str:
    """Return a value of ``--server`` with options for its ports.

    Args:
        server: As the user wrote it.
        ports: The user's ports by service; for None, Triton's usual port if it is free, and otherwise any.
    """
    if server in {"embedded", "docker"}:
        numbers = {name: _usual_port(name) if port is None else port for name, port in ports.items()}
    else:
        numbers = {name: port for name, port in ports.items() if port is not None}
    options = ",".join(f"{name}_port={port}" for name, port in numbers.items())
    return f"{server}{',' if ':' in server else ':'}{options}" if options else server


def _usual_port(service: str) -> int:
    """Return the port that Triton itself uses for a service; 0 if it is in use."""
    port = _USUAL_PORTS[service]
    try:
        choose_ports(PortOptions.model_validate({f"{service}_port": port}))
    except ServerError:
        return 0
    return port


def states(triton: RunningTriton, repository: Path, names: tuple[str, ...]) -> list[ServedModel]:
    """Return what a server serves of a repository, or of some of its models; the others with the reason."""
    failures = load_failures(triton.log_tail(LOG_LINES)) | _refused(repository, names)
    return served_models(triton.endpoint.http, names or models_of(repository), failures)


def _refused(repository: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return why repogen does not let a server load models, by name: all of a repository, or some."""
    reasons = {name: refusal_reasons(repository / name) for name in names or models_of(repository)}
    return {name: "; ".join(texts) for name, texts in reasons.items() if texts}


def _report_failures(triton: RunningTriton, progress: Progress, reported: dict[str, str]) -> dict[str, str]:
    """Note each failure to load that was not reported; return all failures."""
    failures = load_failures(triton.log_tail(LOG_LINES))
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


def wait(triton: RunningTriton, progress: Progress) -> None:
    """Return when Ctrl-C is pressed; note each model that fails to load in the meantime.

    Raises:
        ServerError: The server exited.
    """
    reported = load_failures(triton.log_tail(LOG_LINES))
    reloads = len(_reloads(triton))
    try:
        while triton.alive():
            time.sleep(_POLL_SECONDS)
            reported = _report_failures(triton, progress, reported)
            events = _reloads(triton)
            for name, event in events[reloads:]:
                progress.note(name, event)
            reloads = len(events)
    except KeyboardInterrupt:
        return
    raise ServerError(f"Triton exited; its log ends with:\n{triton.log_tail()}", code="server.ended")


def _reloads(triton: RunningTriton) -> list[tuple[str, str]]:
    """Return which models the server has loaded and unloaded, in this order."""
    log = triton.log_tail(LOG_LINES)
    return [(match["name"], f"{match['event']}{match['version'] or ''}") for match in _RELOAD.finditer(log)]


def install_server(wheels: Path | None, progress: Progress, release: str = DEFAULT_RELEASE) -> Path:
    """Install the embedded Triton for a target; return its directory.

    Args:
        wheels: Directory of wheels for a machine without a network; None downloads them. If it has the wheel of
            perf_analyzer, which `repogen bench` needs, that is installed as well.
        progress: Receives progress events of downloads.
        release: The target release, which decides the version of ONNX Runtime.

    Raises:
        SpecError: The release is unknown.
        ServerError: It cannot run here, or a wheel is not available.
    """
    target = find_target(release)
    if target is None:
        raise SpecError(f"release {release!r} is unknown", f"use one of {', '.join(targets())}", code="check.release")
    server = EmbeddedTriton(target, progress)
    server.preflight()
    server.install(wheels)
    installation = locate(target.onnxruntime)
    if wheels is not None and (wheels / installation.lock.perf_analyzer.wheel.file).is_file():
        install_perf_analyzer(installation, progress, wheels)
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
