"""All checks of one version against a simulated Triton: it passes when it is right, and each flaw is caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from repogen.artifacts.serving import SmokeCheck
from repogen.errors import SmokeError
from repogen.smoke.limits import Limits
from repogen.smoke.report import raise_for_failures, report_of
from repogen.smoke.run_checks import examine

from .conftest import CONFIG

Simulated = Callable[..., tuple[Any, Any]]
UNBATCHED = """
name: "double" backend: "onnxruntime"
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
instance_group { count: 1 kind: KIND_CPU }
"""


def examined(simulated: Simulated, *flaws: str, limits: Limits | None = None, **how: str) -> list[SmokeCheck]:
    """Run all checks on a simulated server."""
    server, subject = simulated(*flaws, **how)
    return examine(server, server, subject, limits or Limits())[0]


def failed(checks: list[SmokeCheck]) -> list[str]:
    """Return the names of the failed checks."""
    return [check.name for check in checks if not check.passed]


def test_right_server_passes_every_check(simulated: Simulated) -> None:
    """A server that keeps its config's promises passes, and the checks are those that the docs list."""
    checks = examined(simulated)
    assert [check.name for check in checks if check.passed and not check.warning] == [
        "ready",
        "metadata",
        "config",
        "golden batch=3",
        "batch 1",
        "batch 2",
        "batch 3",
        "batch 4",
        "batch 8",
        "refuses batch 9",
        "refuses INT32 for x (FP32)",
        "serves on after refusals",
        "dynamic batching",
    ]


def test_model_that_does_not_batch_has_no_batch_checks(simulated: Simulated) -> None:
    """With max_batch_size 0 nothing is claimed of batches."""
    checks = examined(simulated, config=UNBATCHED)
    names = ["ready", "metadata", "config", "golden batch=3", "refuses INT32 for x (FP32)", "serves on after refusals"]
    assert names == [check.name for check in checks if check.passed]


@pytest.mark.parametrize(
    ("flaw", "expected"),
    [
        ("not ready", ["ready"]),
        ("metadata", ["metadata"]),
        ("config", ["config"]),
        ("large batches", ["batch 8"]),
        ("any batch", ["refuses batch 9"]),
        ("any dtype", ["refuses INT32 for x (FP32)"]),
        ("late refusal", ["refuses INT32 for x (FP32)"]),
        ("mixes a burst", ["dynamic batching"]),
        ("hangs", ["answers"]),
    ],
)
def test_flaw_fails_its_check(simulated: Simulated, flaw: str, expected: list[str]) -> None:
    """Each way to be wrong fails the check that is about it, and no other."""
    assert expected == failed(examined(simulated, flaw))


@pytest.mark.parametrize("flaw", ["numbers", "nan"])
def test_wrong_numbers_fail_wherever_they_are_compared(simulated: Simulated, flaw: str) -> None:
    """A wrong output fails the golden case, every batch and the bursts."""
    names = failed(examined(simulated, flaw))
    assert names[:6] == ["golden batch=3", "batch 1", "batch 2", "batch 3", "batch 4", "batch 8"]
    assert names[6:] == ["serves on after refusals", "dynamic batching"]


def test_batching_never_seen_is_a_warning_after_all_bursts(simulated: Simulated) -> None:
    """A server too fast to be caught is no failure, and the figures are said."""
    last = examined(simulated, "never joins", limits=Limits(bursts=(2, 4)))[-1]
    expected = SmokeCheck(
        "dynamic batching", passed=True, detail="not observed: 4 requests in 4 executions", warning=True
    )
    assert expected == last


def test_what_is_too_large_to_send_is_said(simulated: Simulated) -> None:
    """A limit on bytes leaves checks out as warnings, never silently."""
    checks = examined(simulated, limits=Limits(request_bytes=32))
    assert [check.name for check in checks if check.warning] == ["batch 8", "refuses batch 9", "dynamic batching"]
    assert failed(checks) == []


def test_large_answers_are_not_asked_for(simulated: Simulated) -> None:
    """Outputs are bounded as inputs are."""
    checks = examined(simulated, limits=Limits(answer_bytes=32))
    assert [check.name for check in checks if check.warning] == ["batch 8", "refuses batch 9"]
    assert failed(checks) == []


def test_largest_batch_size_of_all(simulated: Simulated) -> None:
    """A config may allow more rows than any memory holds: only what can be sent is made."""
    largest = 2**31 - 1
    checks = examined(simulated, config=CONFIG.replace("max_batch_size: 8", f"max_batch_size: {largest}"))
    warned = [check.name for check in checks if check.warning]
    assert warned == [f"batch {largest // 2}", f"batch {largest}", f"refuses batch {largest + 1}"]
    assert failed(checks) == []


def test_what_takes_too_long_is_said(simulated: Simulated) -> None:
    """Without time for batches, those after the first, which tells the pace, are warnings."""
    checks = examined(simulated, limits=Limits(batches_seconds=0.0))
    warned = [check.name for check in checks if check.warning]
    assert warned[-4:] == ["batch 2", "batch 3", "batch 4", "batch 8"]


def test_dead_server_is_an_error_with_its_log(simulated: Simulated) -> None:
    """A crash ends the test with the log's last lines, not with a failed comparison."""
    with pytest.raises(SmokeError, match="segmentation fault") as caught:
        examined(simulated, "dies")
    assert caught.value.code == "smoke.server-died"


def test_latency_is_of_real_requests(simulated: Simulated) -> None:
    """As many requests as the limit allows are timed, and the percentiles are ordered."""
    server, subject = simulated()
    latency = examine(server, server, subject, Limits(latency_requests=5, latency_seconds=60.0))[1]
    assert latency is not None
    assert latency.requests == 5
    assert latency.p50 <= latency.p95 <= latency.p99


def test_no_latency_of_a_wrong_server(simulated: Simulated) -> None:
    """Figures of a model that answers wrongly would only mislead."""
    server, subject = simulated("numbers")
    assert examine(server, server, subject, Limits())[1] is None


def test_failures_are_raised_with_their_figures(simulated: Simulated) -> None:
    """The error names version, check and figures; a passing report raises nothing."""
    server, subject = simulated("config")
    checks = examine(server, server, subject, Limits())[0]
    with pytest.raises(SmokeError) as caught:
        raise_for_failures(report_of(server.endpoint, "double", 1, checks))
    expected = (
        "Triton 2.51.0 (embedded) does not serve double version 1 as promised:\n"
        "  config: instance_group[0].count: expected 1, found 2"
    )
    assert expected == caught.value.message
    raise_for_failures(report_of(server.endpoint, "double", 1, examined(simulated)))


def test_operator_unknown_to_the_runtime(simulated: Simulated) -> None:
    """What only a newer ONNX Runtime can do comes with the two ways out."""
    said = "onnx runtime error 9: Could not find an implementation for Add(14) node with name 'add'"
    checks = [SmokeCheck("loads", passed=False, detail=said)]
    with pytest.raises(SmokeError) as caught:
        raise_for_failures(report_of(simulated()[0].endpoint, "double", 1, checks))
    assert "cast in the model, or choose a newer target.triton" in caught.value.hint


def test_report_without_checks_is_a_failure(simulated: Simulated) -> None:
    """Nothing checked is nothing proved."""
    with pytest.raises(SmokeError, match="nothing was checked"):
        raise_for_failures(report_of(simulated()[0].endpoint, "double", 1, []))
