"""The plug-in ``triton-repogen`` of ``mlflow.deployments``.

A deployment is a model of a Triton server, under the name of the registered model. To create or update one, the version
is downloaded from the registry, published into the repository that the servers read, loaded by each server and tested
there. A version that fails on a server is replaced by the one before.

Interface: mlflow.deployments.BaseDeploymentClient.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.deployments import BaseDeploymentClient, PredictionsResponse
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    INTERNAL_ERROR,
    INVALID_PARAMETER_VALUE,
    RESOURCE_ALREADY_EXISTS,
    RESOURCE_DOES_NOT_EXIST,
    TEMPORARILY_UNAVAILABLE,
)

from repogen.artifacts.deployment import DeployOptions
from repogen.artifacts.progress import Silent
from repogen.artifacts.transfer import TransferOptions
from repogen.deploy.deploy import deploy
from repogen.deploy.live_server import LiveServer, open_server
from repogen.deployments.download import download, find_entry
from repogen.deployments.target import SCHEME, Target, parse_target
from repogen.deployments.tensors import json_of, wire_tensors
from repogen.errors import RepogenError, SourceError, SpecError, error_from_record
from repogen.files.temporary import temporary_directory
from repogen.registry.mlflow.access import open_registry
from repogen.registry.mlflow.client import servers_restored
from repogen.registry.mlflow.uri import tracking_of
from repogen.reporting.output import safe_text
from repogen.serving import commands
from repogen.smoke.inference import RefusedError
from repogen.versions.transfer import transfer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.deployment import DeployReport
    from repogen.artifacts.tracking import Tracking

_MAX_OUTPUT_BYTES = 2**28
"""Of a prediction, which is returned as nested lists: they take many times as much memory."""
_HELP = f"""\
Deploys versions that repogen registered to running Triton servers in explicit mode, and tests them there.

Target URI:
  {SCHEME}://HOST:PORT[,HOST:PORT...][?repository=DIR&tls_root=FILE&tls_key=FILE&tls_cert=FILE]
  {SCHEME}, with the servers in the environment variable REPOGEN_DEPLOY_SERVERS

  HOST:PORT is the address of the gRPC service. DIR is the path on this machine of the repository that the servers read;
  default: REPOGEN_DEPLOY_REPOSITORY, or model_repository.

Options of create and update (-C KEY=VALUE):
  repository, tls, tls_root, tls_key, tls_cert: as in the target URI

The name of a deployment is the name of its registered model. The model URI is models:/NAME/VERSION or
models:/NAME@ALIAS. The steps of an ensemble are deployed with it. The header of the servers' control API is read from
REPOGEN_CONTROL_HEADER.
"""


def target_help() -> str:
    """Return what ``mlflow deployments help`` prints."""
    return _HELP


def run_local(name: str, model_uri: str, flavor: str | None = None, config: Mapping[str, object] | None = None) -> None:
    """Serve a registered version with the embedded Triton until Ctrl-C; nothing else is changed.

    MLflow passes no target, although ``mlflow.deployments.base`` documents one.

    Args:
        name: Name of the registered model.
        model_uri: ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.
        flavor: Not used.
        config: Not used.
    """
    del flavor, config
    with local_server(name, model_uri) as grpc:
        print(f"serving {name} at {grpc} (gRPC) until Ctrl-C", flush=True)  # noqa: T201 - of mlflow's command
        threading.Event().wait()


@contextmanager
def local_server(name: str, model_uri: str) -> Iterator[str]:
    """Serve a registered version with the embedded Triton while the block runs; yield the gRPC address.

    Raises:
        MlflowException: The version does not exist, or cannot be served.
    """
    with _mlflow_errors(), temporary_directory() as directory:
        repository = directory / "models"
        _download(name, model_uri, repository)
        with commands.serve(repository, "embedded", poll=False, progress=Silent()) as triton:
            yield triton.endpoint.grpc


class TritonDeploymentClient(BaseDeploymentClient):
    """Deployments on Triton servers, see ``target_help``."""

    def create_deployment(
        self,
        name: str,
        model_uri: str,
        flavor: str | None = None,
        config: Mapping[str, object] | None = None,
        endpoint: str | None = None,
    ) -> dict[str, Any]:
        """Deploy a registered version, and return when every server serves it.

        Args:
            name: Name of the registered model.
            model_uri: ``models:/NAME/VERSION`` or ``models:/NAME@ALIAS``.
            flavor: Not used.
            config: Options, see ``target_help``.
            endpoint: Not supported.

        Returns:
            As ``get_deployment``.

        Raises:
            MlflowException: RESOURCE_ALREADY_EXISTS if a server serves the model; see ``_code`` for the others.
        """
        del flavor
        with _mlflow_errors():
            target = self._target(config, endpoint)
            if serving := [address for address, versions in _served(target, name).items() if versions]:
                raise MlflowException(
                    f"{name} is already served by {', '.join(serving)}; update the deployment instead",
                    error_code=RESOURCE_ALREADY_EXISTS,
                )
            return _deploy(target, name, model_uri)

    def update_deployment(
        self,
        name: str,
        model_uri: str | None = None,
        flavor: str | None = None,
        config: Mapping[str, object] | None = None,
        endpoint: str | None = None,
    ) -> dict[str, Any]:
        """Replace the version of a deployment; the servers respond with the old one until the new one is ready.

        Raises:
            MlflowException: RESOURCE_DOES_NOT_EXIST if no server serves the model; see ``_code`` for the others.
        """
        del flavor
        with _mlflow_errors():
            target = self._target(config, endpoint)
            _require_served(_served(target, name), name)
            if model_uri is None:
                raise SpecError(
                    "there is nothing to update without a model URI",
                    "pass models:/NAME/VERSION or models:/NAME@ALIAS",
                    code="deployments.model",
                )
            return _deploy(target, name, model_uri)

    def delete_deployment(
        self, name: str, config: Mapping[str, object] | None = None, endpoint: str | None = None
    ) -> None:
        """Unload a model from the servers; its versions stay in the repository. A missing one is not an error.

        Raises:
            MlflowException: A server does not respond, or uses the model as a step of an ensemble.
        """
        with _mlflow_errors():
            target = self._target(config, endpoint)
            if any(_served(target, name).values()):
                options = DeployOptions(target.servers, unload=(name,), credentials=target.credentials)
                _raise_errors(deploy(target.repository, options, Silent()))

    def list_deployments(self, endpoint: str | None = None) -> list[dict[str, Any]]:
        """Return every model that a server serves, as ``get_deployment`` does."""
        with _mlflow_errors():
            target = self._target(None, endpoint)
            serving = {}
            for address in target.servers:
                with open_server(address, target.credentials, None) as server:
                    serving[address] = server.serving()
            names = sorted({name for models in serving.values() for name in models})
            return [
                _description(name, {address: models.get(name, ()) for address, models in serving.items()})
                for name in names
            ]

    def get_deployment(self, name: str, endpoint: str | None = None) -> dict[str, Any]:
        """Return a deployment: its name, and the versions that each server serves, by address.

        Raises:
            MlflowException: RESOURCE_DOES_NOT_EXIST if no server serves the model.
        """
        with _mlflow_errors():
            served = _served(self._target(None, endpoint), name)
            _require_served(served, name)
            return _description(name, served)

    def predict(
        self,
        deployment_name: str | None = None,
        inputs: Any = None,  # noqa: ANN401 - mlflow's signature
        endpoint: str | None = None,
    ) -> PredictionsResponse:
        """Return the outputs of one request to the first server, by name, as nested lists.

        Args:
            deployment_name: The deployment.
            inputs: A DataFrame with a column for each input, a mapping from names to arrays, or an array.
            endpoint: Not supported.

        Raises:
            MlflowException: INVALID_PARAMETER_VALUE if the inputs do not fit the model.
        """
        with _mlflow_errors():
            if deployment_name is None:
                raise SpecError("the name of the deployment is missing", "pass --name", code="deployments.name")
            target = self._target(None, endpoint)
            with open_server(target.servers[0], target.credentials, None) as server:
                versions = server.snapshot(deployment_name).versions
                _require_served({server.address: versions}, deployment_name)
                return PredictionsResponse({"predictions": _infer(server, deployment_name, versions[0], inputs)})

    def _target(self, config: Mapping[str, object] | None, endpoint: str | None) -> Target:
        if endpoint is not None:
            raise SpecError("this target has no endpoints", "omit --endpoint", code="deployments.endpoint")
        return parse_target(self.target_uri, config)


def _infer(server: LiveServer, name: str, version: int, inputs: Any) -> dict[str, Any]:  # noqa: ANN401 - any data
    with server.named_errors():
        metadata = server.client.metadata(name, version)
        tensors = wire_tensors(inputs, metadata.inputs)
        try:
            return json_of(server.client.infer(name, version, tensors, max_bytes=_MAX_OUTPUT_BYTES))
        except RefusedError as error:
            raise SpecError(
                f"{name} version {version} rejected the request: {error.message}",
                "correct the inputs; `repogen smoke` shows a request that works",
                code="deployments.inputs",
            ) from error


def _deploy(target: Target, name: str, model_uri: str) -> dict[str, Any]:
    with temporary_directory() as directory:
        source = directory / "models"
        version = _download(name, model_uri, source)
        transfer(source, target.repository, name, TransferOptions(version))
    options = DeployOptions(target.servers, (name,), credentials=target.credentials)
    _raise_errors(deploy(target.repository, options, Silent()))
    return _description(name, _served(target, name))


def _download(name: str, model_uri: str, repository: Path) -> int:
    """Download the version of a URI, and return its number in the registry."""
    tracking = _tracking()
    with servers_restored():
        registry = open_registry(tracking)
        entry = find_entry(tracking, registry, model_uri)
        if entry.name != name:
            raise SpecError(
                f"the deployment {name} cannot serve a version of {entry.name}",
                "a deployment has the name of its registered model",
                code="deployments.name",
            )
        repository.mkdir()
        download(registry, entry, repository)
    return entry.version


def _tracking() -> Tracking:
    """Return MLflow's own tracking server: what `mlflow.set_tracking_uri` or the environment sets."""
    return tracking_of(None, mlflow.get_registry_uri(), Path())


def _served(target: Target, name: str) -> dict[str, tuple[int, ...]]:
    """Return the versions of a model that each server serves, newest first."""
    served = {}
    for address in target.servers:
        with open_server(address, target.credentials, None) as server:
            served[address] = server.snapshot(name).versions
    return served


def _description(name: str, served: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    versions = {address: list(numbers) for address, numbers in served.items()}
    return {"name": name, "flavor": "triton", "versions": versions}


def _require_served(served: Mapping[str, tuple[int, ...]], name: str) -> None:
    if not any(served.values()):
        raise MlflowException(
            f"{name} is not served by {', '.join(served)}; create the deployment first",
            error_code=RESOURCE_DOES_NOT_EXIST,
        )


def _raise_errors(report: DeployReport) -> None:
    """Raise the first error of a deploy."""
    for server in report.servers:
        for record in server.errors:
            raise error_from_record(record)


@contextmanager
def _mlflow_errors() -> Iterator[None]:
    """Turn repogen's errors into MLflow's, with a code that its clients know."""
    try:
        yield
    except RepogenError as error:
        hint = f"; {error.hint}" if error.hint else ""
        # on one line: GitHub's runner would execute a command at the start of a line
        message = " ".join(safe_text(f"{error.message}{hint} ({error.code})").splitlines())
        # MLflow prints the causes as well, and those can contain any text of a server
        raise MlflowException(message, error_code=_code(error)) from None


def _code(error: RepogenError) -> int:
    """Return MLflow's code of an error: of the request, of a missing version, of a server, or of the version itself."""
    if isinstance(error, SourceError) or error.code == "tracking.step":
        return RESOURCE_DOES_NOT_EXIST
    if isinstance(error, SpecError):
        return INVALID_PARAMETER_VALUE
    if error.code in {"deploy.server-lost", "deploy.timeout", "server.remote"}:
        return TEMPORARILY_UNAVAILABLE
    return INTERNAL_ERROR
