"""The smoke test of a build: staged bytes, served privately."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.errors import SmokeError
from repogen.smoke.deployed_model import read_subject
from repogen.smoke.grpc_client import GrpcClient
from repogen.smoke.inference import RefusedError
from repogen.smoke.limits import Limits
from repogen.smoke.loading import loaded, private_name, requirements_of, sent_files
from repogen.smoke.overrides import overridden
from repogen.smoke.report import report_of
from repogen.smoke.run_checks import answering, examine, files_check
from repogen.smoke.unsupported import untried
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    from repogen.artifacts.serving import Latency, RunningTriton, SmokeReport
    from repogen.artifacts.versions import StagedVersion
    from repogen.smoke.deployed_model import Subject
    from repogen.smoke.inference import InferenceClient


def smoke_staged(server: RunningTriton, staged: StagedVersion, limits: Limits | None = None) -> SmokeReport:
    """Load a staged version into a running Triton, test it, unload it.

    The bytes of the model are those to be published. The config may differ in instance_group kind and gpus,
    execution_accelerators and version_policy, where this server could not serve it otherwise; the report lists each.
    A server that does not see this machine's disk is sent the bytes, under a private name.

    Args:
        server: In explicit mode; started on ``staged.repository`` unless it is a remote one.
        staged: What to test.
        limits: Bounds on time and size.

    Returns:
        The report; a model that does not load, or answers wrongly, is a failed check in it.

    Raises:
        SmokeError: The server died or is not in explicit mode, the golden tensors can't be read, or the model is too
            large to be sent.
    """
    limits = limits or Limits()
    endpoint = server.endpoint
    told, overrides = overridden(
        parse(staged.config.text, f"config.pbtxt of {staged.name}"), version=staged.version, has_gpu=endpoint.has_gpu
    )
    checks = [files_check(staged.version_dir, staged.manifest)]
    server.provide(requirements_of(told, staged.version_dir, staged.repository))
    if not endpoint.sees_files:
        if told.HasField("ensemble_scheduling"):
            raise SmokeError(
                f"{staged.name}: an ensemble can't be sent to a remote server, which lacks the models of its steps",
                "use --server embedded or docker; or --no-smoke, and `repogen smoke` where the repository is mounted",
                code="smoke.ensemble",
            )
        told.name = private_name(staged.name)
        overrides = (f"name: {staged.name} -> {told.name} (a private copy: no live model is touched)", *overrides)
    if (skipped := untried(endpoint, told)) is not None:
        return report_of(endpoint, staged.name, staged.version, [*checks, skipped], overrides)
    subject = read_subject(
        staged.version_dir, staged.manifest, told, model=staged.name, served_as=told.name, version=staged.version
    )
    latency = None
    if checks[0].passed:
        with GrpcClient(endpoint.grpc, limits) as client:
            more, latency = _loaded_and_examined(server, client, subject, staged, limits, changed=bool(overrides))
            checks += more
    return report_of(endpoint, staged.name, staged.version, checks, overrides, latency)


def _loaded_and_examined(
    server: RunningTriton,
    client: InferenceClient,
    subject: Subject,
    staged: StagedVersion,
    limits: Limits,
    *,
    changed: bool,
) -> tuple[list[SmokeCheck], Latency | None]:
    files = {} if server.endpoint.sees_files else sent_files(staged.version_dir, staged.version)
    checks: list[SmokeCheck] = []
    latency: Latency | None = None
    config: ModelConfig | None = subject.config if changed else None
    with answering(server, checks), ExitStack() as unloading:
        try:
            unloading.enter_context(loaded(client, subject.served_as, config, files))
        except RefusedError as refusal:
            return [SmokeCheck("loads", passed=False, detail=refusal.message)], None
        checks.append(SmokeCheck("loads", passed=True))
        more, latency = examine(server, client, subject, limits)
        checks += more
    return checks, latency
