"""Checks become a report, and a report with failures an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeReport
from repogen.errors import SmokeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.serving import Endpoint, Latency, SmokeCheck

_HINTS = (
    ("model IR version", "lower export.opset or raise target.triton in the spec, or ask a newer server"),
    ("Current official support", "lower export.opset or raise target.triton in the spec, or ask a newer server"),
    (
        "Could not find an implementation for",
        "the target's ONNX Runtime lacks it for that dtype: cast in the model, or choose a newer target.triton",
    ),
    (
        "KIND_GPU",
        "this server has no GPU: name one that has, or --server embedded, which tests such a model on the CPU",
    ),
)


def report_of(
    endpoint: Endpoint,
    model: str,
    version: int,
    checks: Sequence[SmokeCheck],
    overrides: Sequence[str] = (),
    latency: Latency | None = None,
) -> SmokeReport:
    """Return the report on one version."""
    return SmokeReport(
        model=model,
        version=version,
        server=endpoint.kind,
        server_version=endpoint.server_version,
        runtime=endpoint.runtime,
        checks=tuple(checks),
        overrides=tuple(overrides),
        latency=latency,
    )


def raise_for_failures(report: SmokeReport) -> None:
    """Raise what failed, if anything did.

    Raises:
        SmokeError: With one line for each failed check, figures included.
    """
    if report.passed:
        return
    failed = [f"  {check.name}: {check.detail}" for check in report.checks if not check.passed]
    lines = "\n".join(failed) or "  nothing was checked"
    hints = [hint for words, hint in _HINTS if words in lines]
    raise SmokeError(
        f"Triton {report.server_version} ({report.server}) does not serve {report.model} version {report.version} as "
        f"promised:\n{lines}",
        hints[0] if hints else "`repogen serve` starts the same server to look at it by hand",
        code="smoke.failed",
    )
