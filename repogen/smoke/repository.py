"""The smoke test of a whole repository, as published: every model, every version that its config serves."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.serving import SmokeCheck
from repogen.errors import RepogenError
from repogen.repository.layout import triton_versions
from repogen.repository.manifest import read_manifest
from repogen.repository.version_policy import served_versions
from repogen.smoke.deployed_model import read_subject
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import RefusedError
from repogen.smoke.limits import Limits
from repogen.smoke.loading import loaded, requirements_of
from repogen.smoke.overrides import overridden
from repogen.smoke.report import report_of
from repogen.smoke.run_checks import answering, examine, files_check
from repogen.smoke.unsupported import untried
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.serving import RunningTriton, SmokeReport
    from repogen.smoke.inference import InferenceClient


@dataclass(frozen=True)
class _Model:
    """A model directory with its config as it is to be served here."""

    directory: Path
    config: ModelConfig
    overrides: tuple[str, ...]
    versions: tuple[int, ...]


@dataclass(frozen=True)
class _Tester:
    """What stays the same from model to model."""

    server: RunningTriton
    client: InferenceClient
    limits: Limits


def smoke_repository(
    server: RunningTriton, repository: Path, names: Iterable[str] = (), limits: Limits | None = None
) -> list[SmokeReport]:
    """Test what a repository holds against the golden tensors that lie in it; nothing is written.

    Args:
        server: In explicit mode and started on ``repository``; or a remote one, of which is tested what it already
            serves under these names.
        repository: A model repository built by repogen.
        names: Models to test; all of them when empty.
        limits: Bounds on time and size.

    Returns:
        One report for each served version, ordered by model and version. What was not built by repogen, can't be read
        or does not load is a failed check in its report.

    Raises:
        SmokeError: The server died or is not in explicit mode.
    """
    limits = limits or Limits()
    chosen = tuple(names) or sorted(entry.name for entry in repository.iterdir() if entry.is_dir())
    with GrpcClient(server.endpoint.grpc, limits) as client:
        tester = _Tester(server, client, limits)
        return [report for name in chosen for report in _smoke_model(tester, repository / name)]


def _smoke_model(tester: _Tester, directory: Path) -> list[SmokeReport]:
    endpoint = tester.server.endpoint
    try:
        model = _read_model(tester.server, directory)
    except (RepogenError, OSError, UnicodeDecodeError) as error:
        check = SmokeCheck("config.pbtxt", passed=False, detail=_said(error))
        return [report_of(endpoint, directory.name, 0, [check])]
    if not model.versions:
        check = SmokeCheck("versions", passed=False, detail="its config serves none of the versions that are there")
        return [report_of(endpoint, directory.name, 0, [check])]
    reports: list[SmokeReport] = []
    ending: list[SmokeCheck] = []
    with answering(tester.server, ending), ExitStack() as unloading:
        if endpoint.sees_files:
            if untried(endpoint, model.config) is not None:
                return [_smoke_version(tester, model, version) for version in model.versions]
            try:
                tester.server.provide(_requirements(model, directory.parent))
                config = model.config if model.overrides else None
                unloading.enter_context(loaded(tester.client, directory.name, config, {}))
            except RefusedError as refusal:
                check = SmokeCheck("loads", passed=False, detail=refusal.message)
                return [report_of(endpoint, directory.name, model.versions[-1], [check], model.overrides)]
        reports += [_smoke_version(tester, model, version) for version in model.versions]
    if ending:
        reports.append(report_of(endpoint, directory.name, model.versions[-1], ending, model.overrides))
    return reports


def _requirements(model: _Model, repository: Path) -> list[str]:
    paths = [model.directory / str(version) for version in model.versions]
    return [line for path in paths for line in requirements_of(model.config, path, repository)]


def _read_model(server: RunningTriton, directory: Path) -> _Model:
    text = (directory / CONFIG_FILE).read_text(encoding="utf-8")
    config = parse(text, f"{directory.name}/{CONFIG_FILE}")
    config.name = config.name or directory.name
    served = tuple(reversed(served_versions(config, triton_versions(directory))))
    if not server.endpoint.sees_files:
        return _Model(directory, config, (), served)
    # the version policy stays: which versions it serves is part of what is tested
    told, overrides = overridden(config, version=served[-1] if served else 0, has_gpu=server.endpoint.has_gpu)
    return _Model(directory, told, overrides, served)


def _smoke_version(tester: _Tester, model: _Model, version: int) -> SmokeReport:
    name, version_dir = model.directory.name, model.directory / str(version)
    checks: list[SmokeCheck] = []
    latency = None
    try:
        manifest = read_manifest(version_dir)
        checks.append(files_check(version_dir, manifest))
        if (skipped := untried(tester.server.endpoint, model.config)) is not None:
            return report_of(tester.server.endpoint, name, version, [*checks, skipped], model.overrides)
        subject = read_subject(version_dir, manifest, model.config, model=name, served_as=name, version=version)
    except FileNotFoundError as error:
        detail = f"it was not built by repogen, or lost a file: {_said(error)}"
        checks.append(SmokeCheck("built by repogen", passed=False, detail=detail))
    except (RepogenError, OSError) as error:
        checks.append(SmokeCheck("golden tensors", passed=False, detail=_said(error)))
    else:
        more, latency = examine(tester.server, tester.client, subject, tester.limits)
        checks += more
    return report_of(tester.server.endpoint, name, version, checks, model.overrides, latency)


def _said(error: Exception) -> str:
    if isinstance(error, RepogenError):
        return error.message
    if isinstance(error, OSError) and error.filename is not None:
        parts = str(error.filename).split("/")[-3:]
        return f"{'/'.join(parts)}: {error.strerror}"
    return str(error)
