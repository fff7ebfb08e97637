"""The smoke test of a staged version, before it is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.smoke.deployed_model import read_deployed_model
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import Limits
from repogen.smoke.preparation import check_supported, prepare_staged
from repogen.smoke.run_checks import files_check, report_of, run_checks, run_while_loaded

if TYPE_CHECKING:
    from repogen.artifacts.serving import RunningTriton, SmokeReport
    from repogen.artifacts.versions import StagedVersion


def smoke_staged(server: RunningTriton, staged: StagedVersion, limits: Limits | None = None) -> SmokeReport:
    """Load a staged version into a running Triton server, test it, and unload it.

    The tested files are the ones that will be published. The config may differ in instance_group kind and gpus,
    execution_accelerators and version_policy, where this server could not serve it otherwise; the report lists each
    change. A server that does not read this machine's disk receives the files, under a private name.

    Args:
        server: A server in explicit mode that was started on ``staged.repository``, or a remote one.
        staged: The version.
        limits: Limits on time and size.

    Returns:
        The report; a model that does not load or returns wrong outputs is a failed check in it.

    Raises:
        SmokeError: The server process ended or is not in explicit mode, the golden tensors cannot be read, or the
            model is too large to send.
    """
    limits, endpoint = limits or Limits(), server.endpoint
    model = prepare_staged(endpoint, staged)
    checks = [files_check(staged.version_dir, staged.manifest)]
    if (warning := check_supported(endpoint, model)) is not None:
        return report_of(endpoint, model, staged.version, [*checks, warning])
    if not checks[0].passed:
        return report_of(endpoint, model, staged.version, checks)
    with GrpcClient(endpoint.grpc, limits, endpoint.control) as client:
        deployed = read_deployed_model(client, model, staged.version_dir, staged.manifest)
        results, failures = run_while_loaded(server, client, model, lambda: run_checks(server, deployed, limits))
    model_checks, latency = results or ([], None)
    if results is not None:
        checks.append(SmokeCheck("loads", passed=True))
    return report_of(endpoint, model, staged.version, [*checks, *model_checks, *failures], latency)
