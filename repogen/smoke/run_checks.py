"""All checks of one version, in order, and what becomes of a server that stops answering."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.errors import SmokeError
from repogen.repository.manifest import damaged_files
from repogen.smoke import basic_checks as contract
from repogen.smoke.batches import batch_sizes, refusals
from repogen.smoke.bursts import dynamic_batching
from repogen.smoke.inference import NoAnswerError, RefusedError
from repogen.smoke.sequences import sequences
from repogen.smoke.timing import latency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from repogen.artifacts.serving import Latency, RunningTriton
    from repogen.artifacts.versions import Manifest
    from repogen.smoke.deployed_model import Subject
    from repogen.smoke.inference import InferenceClient
    from repogen.smoke.limits import Limits


def files_check(version_dir: Path, manifest: Manifest) -> SmokeCheck:
    """Are the files those that the manifest vouches for?"""
    damaged = damaged_files(version_dir, manifest)
    return SmokeCheck("files", not damaged, "; ".join(damaged))


def examine(
    server: RunningTriton, client: InferenceClient, subject: Subject, limits: Limits
) -> tuple[list[SmokeCheck], Latency | None]:
    """Put every claim to the server.

    Returns:
        The checks in order, ended early by one that fails when the version is not ready or requests stop being
        answered; and the latency, None unless all checks before it passed.

    Raises:
        SmokeError: The server died.
    """
    checks: list[SmokeCheck] = []
    with answering(server, checks):
        checks.append(contract.ready(client, subject))
        if not checks[-1].passed:
            return checks, None
        for check in _claims(client, subject, limits):
            checks.extend(_judged(*check))
        if all(check.passed for check in checks):
            return checks, latency(client, subject, limits)
    return checks, None


def _claims(
    client: InferenceClient, subject: Subject, limits: Limits
) -> Iterator[tuple[str, Callable[[], SmokeCheck | Iterable[SmokeCheck]]]]:
    yield "metadata", lambda: contract.metadata(client, subject)
    yield "config", lambda: contract.config(client, subject)
    if subject.config.HasField("sequence_batching"):
        yield "sequences", lambda: sequences(client, subject)
        return
    yield "golden", lambda: contract.golden(client, subject)
    if subject.max_batch_size > 0:
        yield "batch sizes", lambda: batch_sizes(client, subject, limits)
    yield "refusals", lambda: refusals(client, subject, limits)
    if subject.config.HasField("dynamic_batching"):
        yield "dynamic batching", lambda: dynamic_batching(client, subject, limits)


def _judged(name: str, claim: Callable[[], SmokeCheck | Iterable[SmokeCheck]]) -> Iterator[SmokeCheck]:
    """Yield the claim's checks; a request that the server refuses to its surprise fails it."""
    try:
        result = claim()
        if isinstance(result, SmokeCheck):
            yield result
        else:
            yield from result
    except RefusedError as refusal:
        yield SmokeCheck(name, passed=False, detail=str(refusal))


@contextmanager
def answering(server: RunningTriton, checks: list[SmokeCheck]) -> Iterator[None]:
    """Turn silence into a failed check when the server lives, and into an error with its log when it died.

    Raises:
        SmokeError: The server died.
    """
    try:
        yield
    except NoAnswerError as silence:
        if server.alive():
            checks.append(SmokeCheck("answers", passed=False, detail=str(silence)))
            return
        tail = server.log_tail()
        raise SmokeError(
            f"the Triton server died: {silence}" + (f"\nits last words:\n{tail}" if tail else ""),
            "its log says why; a crash in the model's own code shows here too",
            code="smoke.server-died",
            details=server.log_tail(200),
        ) from silence
