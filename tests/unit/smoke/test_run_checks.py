"""All checks of one version on a simulated Triton: a correct server passes, and each flaw fails its check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from repogen.artifacts.serving import SmokeCheck
from repogen.errors import SmokeError
from repogen.smoke.basic_checks import golden
from repogen.smoke.batch_checks import dynamic_batching, rejected_requests
from repogen.smoke.deployed_model import WireCase
from repogen.smoke.inference import Limits
from repogen.smoke.preparation import PreparedModel
from repogen.smoke.run_checks import raise_for_failures, report_of, run_checks
from repogen.triton_config.text.parse import parse

from .conftest import CONFIG

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Arrays

Simulated = Callable[..., tuple[Any, Any]]
UNBATCHED = """
name: "double" backend: "onnxruntime"
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
instance_group { count: 1 kind: KIND_CPU }
"""


def checks_of(simulated: Simulated, *flaws: str, limits: Limits | None = None, **config: str) -> list[SmokeCheck]:
    """Run all checks on a simulated server, and return those over gRPC: it has no HTTP service."""
    server, model = simulated(*flaws, **config)
    checks = run_checks(server, model, limits or Limits())[0]
    return [check for check in checks if check.name != "golden over HTTP"]


def raise_for(server: Any, checks: list[SmokeCheck]) -> None:
    """Raise for the failures among the checks of the simulated model."""
    model = PreparedModel(Path("double"), (1,), parse(CONFIG, "test"))
    raise_for_failures(report_of(server.endpoint, model, 1, checks))


def failed(checks: list[SmokeCheck]) -> list[str]:
    """Return the names of the failed checks."""
    return [check.name for check in checks if not check.passed]


def test_correct_server_passes_every_check(simulated: Simulated) -> None:
    """The checks are those in docs/guides/smoke-tests.md."""
    checks = checks_of(simulated)
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
        "rejects batch 9",
        "rejects INT32 for x (FP32)",
        "still serves after rejected requests",
        "dynamic batching",
    ]
    compared = {check.name for check in checks if check.max_abs_diff is not None}
    batches = {f"batch {size}" for size in (1, 2, 3, 4, 8)}
    assert compared == {"golden batch=3", *batches, "still serves after rejected requests"}


def test_model_that_does_not_batch_has_no_batch_checks(simulated: Simulated) -> None:
    """With max_batch_size 0 batches are not tested."""
    checks = checks_of(simulated, config=UNBATCHED)
    names = ["ready", "metadata", "config", "golden batch=3", "rejects INT32 for x (FP32)"]
    assert [*names, "still serves after rejected requests"] == [check.name for check in checks if check.passed]


def test_model_without_inputs_rejects_no_dtype(simulated: Simulated) -> None:
    """Triton serves such a model, and it was published before builds rejected it."""
    outputs = {"y": np.ones(2, np.float32)}

    class Constant:
        def infer(self, *_: object) -> Arrays:
            return outputs

    model = replace(simulated(config=UNBATCHED)[1], client=Constant(), cases=(WireCase("constant", 0, {}, outputs),))
    (check,) = rejected_requests(model, Limits())
    assert (check.name, check.passed) == ("still serves after rejected requests", True)


@pytest.mark.parametrize(
    ("flaw", "expected"),
    [
        ("not ready", ["ready"]),
        ("metadata", ["metadata"]),
        ("config", ["config"]),
        ("large batches", ["batch 8"]),
        ("any batch", ["rejects batch 9"]),
        ("any dtype", ["rejects INT32 for x (FP32)"]),
        ("late rejection", ["rejects INT32 for x (FP32)"]),
        ("mixes a burst", ["dynamic batching"]),
        ("hangs", ["responds"]),
    ],
)
def test_flaw_fails_its_check(simulated: Simulated, flaw: str, expected: list[str]) -> None:
    """Each flaw fails its own check and no other."""
    assert expected == failed(checks_of(simulated, flaw))


def test_details_have_a_limited_length(simulated: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """They contain names and shapes that the server returned."""
    monkeypatch.setattr(sys.modules[run_checks.__module__], "_MAX_DETAIL", 20)
    (detail,) = (check.detail for check in checks_of(simulated, "metadata") if not check.passed)
    assert (len(detail), detail[-1]) == (20, "…")


@pytest.mark.parametrize("flaw", ["numbers", "nan"])
def test_wrong_outputs_fail_every_comparison(simulated: Simulated, flaw: str) -> None:
    """The golden case, every batch and the bursts fail."""
    names = failed(checks_of(simulated, flaw))
    assert names[:6] == ["golden batch=3", "batch 1", "batch 2", "batch 3", "batch 4", "batch 8"]
    assert names[6:] == ["still serves after rejected requests", "dynamic batching"]


@pytest.mark.parametrize(
    ("dims", "wrong"), [("2", ""), ("-1", ""), ("3", "[3, 2], but the dims in config.pbtxt allow")]
)
def test_outputs_have_the_dims_of_the_config(simulated: Simulated, dims: str, wrong: str) -> None:
    """Clients read the dims in the metadata: a response of another shape fails even if its values are correct."""
    config = CONFIG.replace('"y" data_type: TYPE_FP32 dims: 2', f'"y" data_type: TYPE_FP32 dims: {dims}')
    _, model = simulated(config=config)
    (check,) = golden(model)
    assert check.passed is not bool(wrong)
    assert wrong in check.detail


def test_unobserved_dynamic_batching_is_a_warning(simulated: Simulated) -> None:
    """A fast server does not fail, and the detail has the numbers."""
    last = checks_of(simulated, "never joins", limits=Limits(bursts=(2, 4)))[-1]
    expected = SmokeCheck(
        "dynamic batching", passed=True, detail="not observed: 4 requests in 4 executions", warning=True
    )
    assert expected == last


def test_golden_case_with_very_many_rows(simulated: Simulated) -> None:
    """Only as many rows as a burst has requests are copied: a case has as many as its file has bytes, or more."""
    rows = np.empty((2**40, 0), np.float32)
    _, model = simulated()
    model = replace(model, cases=(WireCase("many", 2**40, {"x": rows}, {"y": rows}),))
    assert "has shape [1, 0]" in dynamic_batching(model, Limits(bursts=(2, 4))).detail


def test_checks_over_the_request_limit_are_warnings(simulated: Simulated) -> None:
    """A limit on bytes does not skip checks silently."""
    checks = checks_of(simulated, limits=Limits(request_bytes=32))
    assert [check.name for check in checks if check.warning] == ["batch 8", "rejects batch 9", "dynamic batching"]
    assert failed(checks) == []


def test_checks_over_the_response_limit_are_warnings(simulated: Simulated) -> None:
    """Outputs have a limit as well."""
    checks = checks_of(simulated, limits=Limits(response_bytes=32))
    assert [check.name for check in checks if check.warning] == ["batch 8", "rejects batch 9"]
    assert failed(checks) == []


def test_largest_possible_batch_size(simulated: Simulated) -> None:
    """Batches that are too large to send are not created."""
    largest = 2**31 - 1
    checks = checks_of(simulated, config=CONFIG.replace("max_batch_size: 8", f"max_batch_size: {largest}"))
    warned = [check.name for check in checks if check.warning]
    assert warned == [f"batch {largest // 2}", f"batch {largest}", f"rejects batch {largest + 1}"]
    assert failed(checks) == []


def test_checks_over_the_time_limit_are_warnings(simulated: Simulated) -> None:
    """Without time for batches, all except the first, which measures the speed, are warnings."""
    checks = checks_of(simulated, limits=Limits(batches_seconds=0.0))
    warned = [check.name for check in checks if check.warning]
    assert warned[-4:] == ["batch 2", "batch 3", "batch 4", "batch 8"]


def test_exited_server_is_an_error_with_its_log(simulated: Simulated) -> None:
    """The message has the log's last lines."""
    with pytest.raises(SmokeError, match="segmentation fault") as caught:
        checks_of(simulated, "dies")
    assert caught.value.code == "smoke.server-died"


def test_latency_is_measured_with_real_requests(simulated: Simulated) -> None:
    """The number of requests is the limit's, and the percentiles are ordered."""
    server, model = simulated()
    latency = run_checks(server, model, Limits(latency_requests=5, latency_seconds=60.0))[1]
    assert latency is not None
    assert latency.requests == 5
    assert latency.p50 <= latency.p95 <= latency.p99


def test_wrong_server_has_no_latency(simulated: Simulated) -> None:
    """Latency is not measured after a failed check."""
    server, model = simulated("numbers")
    assert run_checks(server, model, Limits())[1] is None


def test_failures_are_raised_with_their_details(simulated: Simulated) -> None:
    """The message has the version, the check and its detail; a passing report raises nothing."""
    server, model = simulated("config")
    checks = run_checks(server, model, Limits())[0]
    with pytest.raises(SmokeError) as caught:
        raise_for(server, checks)
    expected = (
        "double version 1 failed the smoke test on Triton 2.51.0 (embedded):\n"
        "  config: instance_group[0].count: expected 1, found 2"
    )
    assert expected == caught.value.message
    raise_for(server, checks_of(simulated))


def test_missing_package_names_the_key_for_it(simulated: Simulated) -> None:
    """The embedded server installs what the spec lists; a hint to start another server would not help."""
    server, _ = simulated()
    checks = [SmokeCheck("loads", passed=False, detail="ModuleNotFoundError: No module named 'tokenizers'")]
    with pytest.raises(SmokeError) as caught:
        raise_for(server, checks)
    assert "list the package and its version in source.requirements" in caught.value.hint


def test_unsupported_operator_has_a_hint(simulated: Simulated) -> None:
    """The hint has both alternatives."""
    message = "onnx runtime error 9: Could not find an implementation for Add(14) node with name 'add'"
    checks = [SmokeCheck("loads", passed=False, detail=message)]
    with pytest.raises(SmokeError) as caught:
        raise_for(simulated()[0], checks)
    assert "cast in the model, or choose a newer target.triton" in caught.value.hint


def test_report_without_checks_is_a_failure(simulated: Simulated) -> None:
    """A report must have at least one check."""
    with pytest.raises(SmokeError, match="no check ran"):
        raise_for(simulated()[0], [])
