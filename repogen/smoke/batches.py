"""Batch sizes up to the largest, and the requests that a server must refuse."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.smoke.basic_checks import answer_to
from repogen.smoke.inference import RefusedError, WireTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.artifacts.tensors import Array
    from repogen.smoke.deployed_model import Case, Subject
    from repogen.smoke.inference import InferenceClient
    from repogen.smoke.limits import Limits

# Another dtype of the same width, so that nothing but the dtype is wrong: wire name -> (wire name, NumPy's).
_OTHER = {
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
_WORDS = 200


def batch_sizes(client: InferenceClient, subject: Subject, limits: Limits) -> Iterator[SmokeCheck]:
    """Send batches of 1, 2, 3, the middle and the largest size, made of a golden case's rows."""
    case, largest = subject.smallest, subject.max_batch_size
    started, a_row = time.monotonic(), 0.0
    for size in sorted({size for size in (1, 2, 3, largest // 2, largest) if 1 <= size <= largest}):
        name = f"batch {size}"
        if too_large := _too_large(case, size, limits):
            yield SmokeCheck(name, passed=True, detail=too_large, warning=True)
            continue
        if time.monotonic() - started + size * a_row > limits.batches_seconds:
            detail = f"not sent: it would take about {size * a_row:.0f} s"
            yield SmokeCheck(name, passed=True, detail=detail, warning=True)
            continue
        sent = time.monotonic()
        yield _batch(client, subject, case.tiled(size), name)
        a_row = (time.monotonic() - sent) / size


def _batch(client: InferenceClient, subject: Subject, case: Case, name: str) -> SmokeCheck:
    try:
        verdict = answer_to(client, subject, case)
    except RefusedError as refusal:
        return SmokeCheck(name, passed=False, detail=_words(refusal))
    return SmokeCheck(name, verdict.equal, verdict.detail)


def refusals(client: InferenceClient, subject: Subject, limits: Limits) -> Iterator[SmokeCheck]:
    """Is what the config forbids refused, and is the model served as before afterwards?"""
    case, too_many = subject.smallest, subject.max_batch_size + 1
    if subject.max_batch_size > 0:
        name = f"refuses batch {too_many}"
        if too_large := _too_large(case, too_many, limits):
            yield SmokeCheck(name, passed=True, detail=too_large, warning=True)
        else:
            yield _refused(client, subject, subject.wire(case.tiled(too_many).inputs), name)
        case = case.tiled(1)
    first, *others = subject.wire(case.inputs)
    wrong = _mistyped(first)
    yield _refused(client, subject, [wrong, *others], f"refuses {wrong.dtype} for {first.name} ({first.dtype})")
    yield _batch(client, subject, case, "serves on after refusals")


def _refused(client: InferenceClient, subject: Subject, inputs: Sequence[WireTensor], name: str) -> SmokeCheck:
    try:
        client.infer(subject.served_as, subject.version, inputs)
    except RefusedError as refusal:
        # any other status would mean that the request reached the model, and failed there
        return SmokeCheck(name, refusal.status == "INVALID_ARGUMENT", _words(refusal))
    return SmokeCheck(name, passed=False, detail="the server answered it")


def _mistyped(tensor: WireTensor) -> WireTensor:
    wire, dtype = _OTHER.get(tensor.dtype, ("INT32", "int32"))
    return WireTensor(tensor.name, wire, _as(tensor.array, dtype))


def _as(array: Array, dtype: str) -> Array:
    import numpy as np  # noqa: PLC0415 - the room's import stays light

    # the values don't matter, and strings have no bits to look at as another dtype
    return np.zeros(array.shape, dtype)


def _too_large(case: Case, size: int, limits: Limits) -> str:
    for what, row_bytes, limit in (
        ("request", case.row_bytes, limits.request_bytes),
        ("answer", case.answer_row_bytes, limits.answer_bytes),
    ):
        if (needed := row_bytes * size) > limit:
            return f"not sent: the {what} would have {needed / 2**20:.0f} MiB, the limit is {limit / 2**20:.0f}"
    return ""


def _words(refusal: RefusedError) -> str:
    text = " ".join(str(refusal).split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"
