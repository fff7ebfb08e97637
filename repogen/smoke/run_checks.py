"""Runs all checks of one version in order, handles a server that does not respond, and writes the report."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.errors import SmokeError
from repogen.repository.manifest import damaged_files
from repogen.serving.connection import excerpt
from repogen.smoke import basic_checks
from repogen.smoke.batch_checks import batch_sizes, dynamic_batching, rejected_requests
from repogen.smoke.inference import NoResponseError, RefusedError
from repogen.smoke.over_http import golden_over_http
from repogen.smoke.preparation import loaded
from repogen.smoke.sequence_checks import sequences
from repogen.smoke.timing import latency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from repogen.artifacts.serving import Endpoint, Latency, RunningTriton
    from repogen.artifacts.versions import Manifest
    from repogen.smoke.deployed_model import DeployedModel
    from repogen.smoke.inference import InferenceClient, Limits
    from repogen.smoke.preparation import PreparedModel

Result = TypeVar("Result")

_MAX_DETAIL = 4000
"""Characters of what a check reports; names and shapes in it are those of the server."""

_UNREADABLE = "failed to poll from model repository"
"""What Triton reports if it cannot read the model's directory or its config; the reason is only in its log."""

_OPSET_HINT = "lower export.opset or raise target.triton in the spec, or use a newer server"
_HINTS = {
    "model IR version": _OPSET_HINT,
    "Current official support": _OPSET_HINT,
    "Could not find an implementation for": (
        "the target's ONNX Runtime does not support the operator for that dtype: cast in the model, or choose a newer "
        "target.triton"
    ),
    "No module named": (
        "list the package and its version in source.requirements, for example NAME==1.2.3; the embedded server then "
        "installs it, and with pack: true it is published with the version"
    ),
    "KIND_GPU": "this server has no GPU: use a server with one; `repogen smoke` tests the model on the CPU",
}


def files_check(version_dir: Path, manifest: Manifest) -> SmokeCheck:
    """Check the files of a version against its manifest."""
    damaged = damaged_files(version_dir, manifest)
    return SmokeCheck("files", not damaged, "; ".join(damaged))


def run_checks(server: RunningTriton, model: DeployedModel, limits: Limits) -> tuple[list[SmokeCheck], Latency | None]:
    """Run every check of a loaded version.

    Returns:
        The checks in order. A check that fails because the version is not ready or the server does not respond is the
        last one. The latency is None unless all checks passed.

    Raises:
        SmokeError: The server process ended.
    """
    checks: list[SmokeCheck] = []
    with as_failed_checks(server, checks):
        checks.append(basic_checks.ready(model))
        if not checks[-1].passed:
            return checks, None
        for name, check in _checks_of(server, model, limits):
            checks.extend(_results(name, check))
        if all(check.passed for check in checks):
            return checks, latency(model, limits)
    return checks, None


def _checks_of(
    server: RunningTriton, model: DeployedModel, limits: Limits
) -> Iterator[tuple[str, Callable[[], SmokeCheck | Iterable[SmokeCheck]]]]:
    """Yield the name and function of each check that applies to the model."""
    yield "metadata", lambda: basic_checks.metadata(model)
    yield "config", lambda: basic_checks.config(model)
    over_http = ("golden over HTTP", lambda: golden_over_http(model, server.endpoint.http))
    if model.in_sequences:
        yield "sequences", lambda: sequences(model)
        yield over_http
        return
    yield "golden", lambda: basic_checks.golden(model)
    yield over_http
    if model.max_batch_size > 0:
        yield "batch sizes", lambda: batch_sizes(model, limits)
    yield "rejected requests", lambda: rejected_requests(model, limits)
    if model.config.HasField("dynamic_batching"):
        yield "dynamic batching", lambda: dynamic_batching(model, limits)


def _results(name: str, check: Callable[[], SmokeCheck | Iterable[SmokeCheck]]) -> Iterator[SmokeCheck]:
    """Yield a check's results; it fails when the server rejects a valid request."""
    try:
        result = check()
        for each in (result,) if isinstance(result, SmokeCheck) else result:
            yield replace(each, detail=excerpt(each.detail, _MAX_DETAIL))
    except RefusedError as refusal:
        yield SmokeCheck(name, passed=False, detail=str(refusal))


@contextmanager
def as_failed_checks(server: RunningTriton, checks: list[SmokeCheck]) -> Iterator[None]:
    """Turn an error of the block into a failed check, or into an error when the server process ended.

    Raises:
        SmokeError: The server process ended.
    """
    try:
        yield
    except RefusedError as refusal:  # for example, another client unloaded the version
        checks.append(SmokeCheck("responds", passed=False, detail=str(refusal)))
    except NoResponseError as error:
        if server.alive():
            checks.append(SmokeCheck("responds", passed=False, detail=str(error)))
            return
        tail = server.log_tail()
        raise SmokeError(
            f"the Triton server exited: {error}" + (f"\nlast log lines:\n{tail}" if tail else ""),
            "see its log for the cause; a crash in the model's code also ends the server",
            code="smoke.server-died",
            details=server.log_tail(200),
        ) from error


def run_while_loaded(
    server: RunningTriton, client: InferenceClient, model: PreparedModel, run: Callable[[], Result]
) -> tuple[Result | None, list[SmokeCheck]]:
    """Load a model, call ``run`` and unload the model.

    Returns:
        What ``run`` returned, None when the model did not load; and the failed checks of loading and unloading.

    Raises:
        SmokeError: The server process ended, or is not in explicit mode.
    """
    result, failures = None, list[SmokeCheck]()
    with as_failed_checks(server, failures), ExitStack() as stack:
        try:
            stack.enter_context(loaded(server, client, model))
        except RefusedError as refusal:
            advice = "; `repogen check` may find the reason" if _UNREADABLE in refusal.message else ""
            return None, [SmokeCheck("loads", passed=False, detail=f"{refusal.message}{advice}")]
        result = run()
    return result, failures


def report_of(
    endpoint: Endpoint,
    model: PreparedModel,
    version: int,
    checks: Sequence[SmokeCheck],
    measured: Latency | None = None,
) -> SmokeReport:
    """Return the report on one version."""
    return SmokeReport(
        model=model.name,
        version=version,
        server=endpoint.kind,
        server_version=endpoint.server_version,
        runtime=endpoint.runtime,
        checks=tuple(checks),
        overrides=model.overrides,
        latency=measured,
    )


def raise_for_failures(report: SmokeReport) -> None:
    """Raise an error for a report with failed checks.

    Raises:
        SmokeError: A check failed; the message has one line for each.
    """
    if report.passed:
        return
    failures = [f"  {check.name}: {check.detail}" for check in report.checks if not check.passed]
    lines = "\n".join(failures) or "  no check ran"
    hints = [hint for text, hint in _HINTS.items() if text in lines]
    raise SmokeError(
        f"{report.model} version {report.version} failed the smoke test on Triton {report.server_version} "
        f"({report.server}):\n{lines}",
        hints[0] if hints else "the guide to smoke tests describes each check",
        code="smoke.failed",
    )
