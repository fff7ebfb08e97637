"""Checks of batching: batch sizes up to the maximum, requests that must be rejected, and dynamic batching."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from repogen.artifacts.serving import SmokeCheck
from repogen.smoke.inference import RefusedError, WireTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.smoke.deployed_model import DeployedModel, WireCase
    from repogen.smoke.inference import Limits, SequencePosition

# Another dtype of the same width, so that only the dtype is wrong: wire name -> (wire name, NumPy's name).
_OTHER_DTYPES = {
    "BOOL": ("UINT8", "uint8"),
    "UINT8": ("INT8", "int8"),
    "INT8": ("UINT8", "uint8"),
    "UINT16": ("INT16", "int16"),
    "INT16": ("FP16", "float16"),
    "FP16": ("INT16", "int16"),
    "UINT32": ("INT32", "int32"),
    "INT32": ("FP32", "float32"),
    "FP32": ("INT32", "int32"),
    "UINT64": ("INT64", "int64"),
    "INT64": ("FP64", "float64"),
    "FP64": ("INT64", "int64"),
}
_MAX_MESSAGE = 200


def batch_sizes(model: DeployedModel, limits: Limits) -> Iterator[SmokeCheck]:
    """Send batches of 1, 2, 3, half the maximum and the maximum, built from a golden case's rows."""
    case, largest = model.smallest, model.max_batch_size
    if model.takes_one_row:
        detail = "not sent: batch_input has one value for each request, so clients must send one row in each"
        yield SmokeCheck("batches", passed=True, detail=detail, warning=True)
        largest = 1
    start, row_seconds = time.monotonic(), 0.0
    for size in sorted({size for size in (1, 2, 3, largest // 2, largest) if 1 <= size <= largest}):
        name = f"batch {size}"
        if too_large := _too_large(case, size, limits):
            yield SmokeCheck(name, passed=True, detail=too_large, warning=True)
            continue
        if time.monotonic() - start + size * row_seconds > limits.batches_seconds:
            detail = f"not sent: it would take about {size * row_seconds:.0f} s"
            yield SmokeCheck(name, passed=True, detail=detail, warning=True)
            continue
        sent_at = time.monotonic()
        yield _check_outputs(model, case.tiled(size), name)
        row_seconds = (time.monotonic() - sent_at) / size


def rejected_requests(model: DeployedModel, limits: Limits) -> Iterator[SmokeCheck]:
    """Send requests that the config forbids, and check that the model is served as before."""
    case, too_many = model.smallest, model.max_batch_size + 1
    if model.max_batch_size > 0:
        name = f"rejects batch {too_many}"
        if too_large := _too_large(case, too_many, limits):
            yield SmokeCheck(name, passed=True, detail=too_large, warning=True)
        else:
            yield check_rejected(model, model.wire(case.tiled(too_many).inputs), name)
        case = case.tiled(1)
    inputs = model.wire(case.inputs)
    for first in inputs[:1]:  # a model may have no inputs
        mistyped = _with_other_dtype(first)
        name = f"rejects {mistyped.dtype} for {first.name} ({first.dtype})"
        yield check_rejected(model, [mistyped, *inputs[1:]], name)
    yield _check_outputs(model, case, "still serves after rejected requests")


def check_rejected(
    model: DeployedModel, inputs: Sequence[WireTensor], name: str, position: SequencePosition | None = None
) -> SmokeCheck:
    """Check that the server rejects a request as an invalid argument."""
    try:
        model.infer(inputs, position)
    except RefusedError as refusal:
        # with any other status the request reached the model and failed there
        return SmokeCheck(name, refusal.status == "INVALID_ARGUMENT", _shorten(refusal))
    return SmokeCheck(name, passed=False, detail="the server accepted it")


def dynamic_batching(model: DeployedModel, limits: Limits) -> SmokeCheck:
    """Send growing bursts of single-row requests until the server's statistics show that it joined some.

    The rows of a burst differ, where the golden case has several, so that swapped outputs are detected. If no requests
    were joined, because the server is too fast, the check is a warning.
    The rows of a ragged model differ in length.
    """
    name, case = "dynamic batching", model.smallest
    most = min(case.batch, max(limits.bursts))
    rows = list(model.cases) if model.is_ragged else [case.rows([row]) for row in range(most)]
    row_bytes = max(row.row_bytes for row in rows)
    observed = "no burst is within the size limit"
    for size in limits.bursts:
        if row_bytes * size > limits.request_bytes:
            break
        burst = [rows[index % len(rows)] for index in range(size)]
        before = model.client.counts(model.name, model.version)
        try:
            problem = _wrong_outputs(model, burst)
        except RefusedError as refusal:
            return SmokeCheck(name, passed=False, detail=f"burst of {size}: {refusal}")
        after = model.client.counts(model.name, model.version)
        inferences, executions = after.inferences - before.inferences, after.executions - before.executions
        observed = f"{inferences} requests in {executions} execution{'' if executions == 1 else 's'}"
        if problem:
            return SmokeCheck(name, passed=False, detail=f"burst of {size}: {problem}")
        if executions < inferences:
            return SmokeCheck(name, passed=True, detail=observed)
    return SmokeCheck(name, passed=True, detail=f"not observed: {observed}", warning=True)


def _check_outputs(model: DeployedModel, case: WireCase, name: str) -> SmokeCheck:
    try:
        comparison = model.compare(case, model.infer(model.wire(case.inputs)))
    except RefusedError as refusal:
        return SmokeCheck(name, passed=False, detail=_shorten(refusal))
    return SmokeCheck(name, comparison.equal, comparison.detail, max_abs_diff=comparison.max_abs_diff)


def _wrong_outputs(model: DeployedModel, burst: list[WireCase]) -> str:
    outputs = model.burst([model.wire(case.inputs) for case in burst])
    comparisons = [model.compare(case, arrays) for case, arrays in zip(burst, outputs, strict=True)]
    details = [comparison.detail for comparison in comparisons if not comparison.equal]
    return f"{len(details)} responses are wrong, the first: {details[0]}" if details else ""


def _with_other_dtype(tensor: WireTensor) -> WireTensor:
    wire, dtype = _OTHER_DTYPES.get(tensor.dtype, ("INT32", "int32"))
    return WireTensor(tensor.name, wire, np.zeros(tensor.array.shape, dtype))


def _too_large(case: WireCase, size: int, limits: Limits) -> str:
    for part, row_bytes, limit in (
        ("request", case.row_bytes, limits.request_bytes),
        ("response", case.output_row_bytes, limits.response_bytes),
    ):
        if (required_bytes := row_bytes * size) > limit:
            return f"not sent: the {part} would have {required_bytes / 2**20:.0f} MiB, the limit is {limit / 2**20:.0f}"
    return ""


def _shorten(refusal: RefusedError) -> str:
    text = " ".join(str(refusal).split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"
