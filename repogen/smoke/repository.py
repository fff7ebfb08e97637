"""The smoke test of a whole repository: every version that Triton serves, tested with its published golden tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonclient.grpc.model_config_pb2 import ModelConfig

from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.artifacts.serving import NO_CREDENTIALS, ControlMode, SmokeCheck
from repogen.errors import RepogenError
from repogen.files import is_file
from repogen.repository.inventory import require_any_model, require_models
from repogen.repository.layout import models_of
from repogen.repository.manifest import read_manifest
from repogen.serving.admission import unexamined_code
from repogen.serving.commands import recorded_target
from repogen.serving.servers import open_triton, prepare_server
from repogen.smoke.deployed_model import read_deployed_model
from repogen.smoke.grpc_client import connect
from repogen.smoke.inference import Limits
from repogen.smoke.preparation import PreparedModel, check_supported, prepare_published
from repogen.smoke.run_checks import files_check, report_of, run_checks, run_while_loaded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials, RunningTriton, SmokeReport
    from repogen.smoke.inference import InferenceClient


def smoke(
    repository: Path,
    names: tuple[str, ...],
    server: str,
    progress: Progress,
    credentials: Credentials = NO_CREDENTIALS,
) -> list[SmokeReport]:
    """Start a Triton and test every served version of a repository on it.

    Args:
        repository: A repository built by repogen; not changed.
        names: Models to test; all when empty.
        server: Value of ``--server``: ``embedded``, ``docker``, ``HOST:PORT``, or the name of a plug-in's server.
        progress: Receives progress events.
        credentials: TLS and headers of a server at ``HOST:PORT``.

    Raises:
        SpecError: The repository or a model does not exist, there is no model, or the server or its options are wrong.
        ServerError: The server cannot be started or reached.
    """
    require_models(repository, names)
    require_any_model(repository)
    target = recorded_target(repository)
    triton_server = prepare_server(server, target, progress, credentials=credentials)
    with open_triton(triton_server, repository, ControlMode.EXPLICIT, progress) as triton:
        progress.step("", "smoke")
        return smoke_repository(triton, repository, names)


def smoke_repository(
    server: RunningTriton, repository: Path, names: Iterable[str] = (), limits: Limits | None = None
) -> list[SmokeReport]:
    """Test the models of a repository with their published golden tensors; changes no file.

    Args:
        server: A server in explicit mode that was started on ``repository``; or a remote one, of which the models that
            it already serves under these names are tested.
        repository: A model repository built by repogen.
        names: Models to test; all when empty.
        limits: Limits on time and size.

    Returns:
        One report for each served version, ordered by model and version. A model that was not built by repogen, cannot
        be read or does not load has a failed check in its report.

    Raises:
        SmokeError: The server process ended or is not in explicit mode.
    """
    limits = limits or Limits()
    models = tuple(names) or models_of(repository)
    with connect(server.endpoint, limits) as client:
        tester = _Tester(server, client, limits)
        return [report for name in models for report in tester.smoke_model(repository / name)]


def smoke_served(
    server: RunningTriton, client: InferenceClient, model: PreparedModel, limits: Limits | None = None
) -> list[SmokeReport]:
    """Test the versions of a model that a server already serves; nothing is loaded.

    Args:
        server: The server.
        client: A connection to it.
        model: The versions to test, and the config that the server should use for them.
        limits: Limits on time and size.

    Raises:
        SmokeError: The server process ended.
    """
    return _Tester(server, client, limits or Limits()).smoke_versions(model)


@dataclass(frozen=True)
class _Tester:
    """Tests one model after another on the same server."""

    server: RunningTriton
    client: InferenceClient
    limits: Limits

    def smoke_model(self, directory: Path) -> list[SmokeReport]:
        """Return one report per served version of a model, or one for the model when it cannot be tested."""
        endpoint = self.server.endpoint
        try:
            model = prepare_published(endpoint, directory)
        except (RepogenError, OSError, UnicodeDecodeError) as error:
            check = SmokeCheck("config.pbtxt", passed=False, detail=_reason(error))
            return [report_of(endpoint, PreparedModel(directory, (), ModelConfig()), 0, [check])]
        if not model.versions:
            detail = "the version policy serves none of the existing versions"
            return [report_of(endpoint, model, 0, [SmokeCheck("versions", passed=False, detail=detail)])]
        if not endpoint.sees_files or check_supported(endpoint, model) is not None:
            return self.smoke_versions(model)
        reports, failures = run_while_loaded(self.server, self.client, model, lambda: self.smoke_versions(model))
        failure_reports = [report_of(endpoint, model, model.versions[-1], failures)] if failures else []
        return [*(reports or ()), *failure_reports]

    def smoke_versions(self, model: PreparedModel) -> list[SmokeReport]:
        """Return one report per version of a loaded model."""
        return [self._smoke_version(model, version) for version in model.versions]

    def _smoke_version(self, model: PreparedModel, version: int) -> SmokeReport:
        endpoint, version_dir = self.server.endpoint, model.directory / str(version)
        checks: list[SmokeCheck] = []
        latency = None
        try:
            manifest = read_manifest(version_dir)
            checks.append(files_check(version_dir, manifest))
            if (warning := check_supported(endpoint, model)) is not None:
                return report_of(endpoint, model, version, [*checks, warning])
            deployed = read_deployed_model(self.client, model, version_dir, manifest)
        except FileNotFoundError as error:
            detail = f"not built by repogen, or a file is missing: {_reason(error)}"
            checks.append(SmokeCheck("built by repogen", passed=False, detail=detail))
            if not is_file(version_dir / MANIFEST_FILE) and (code := unexamined_code(model.directory, model.config)):
                checks.append(SmokeCheck("code", passed=True, detail=f"not examined: {code}", warning=True))
        except (RepogenError, OSError) as error:
            checks.append(SmokeCheck("golden tensors", passed=False, detail=_reason(error)))
        else:
            model_checks, latency = run_checks(self.server, deployed, self.limits)
            checks += model_checks
        return report_of(endpoint, model, version, checks, latency)


def _reason(error: Exception) -> str:
    if isinstance(error, RepogenError):
        return error.message
    if isinstance(error, OSError) and error.filename is not None:
        parts = str(error.filename).split("/")[-3:]
        return f"{'/'.join(parts)}: {error.strerror}"
    return str(error)
