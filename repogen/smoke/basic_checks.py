"""Checks that hold for every model: it is served, described as its config says, and computes what PyTorch computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.artifacts.tensors import DTYPES
from repogen.smoke.compare import Comparison, compare
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.dims import wire_array
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repogen.artifacts.tensors import Array
    from repogen.smoke.deployed_model import Case, Subject
    from repogen.smoke.inference import InferenceClient, TensorMetadata
    from repogen.triton_config.text.view import TensorView

_WIRE = {dtype.triton: dtype.wire for dtype in DTYPES.values()}


def ready(client: InferenceClient, subject: Subject) -> SmokeCheck:
    """Is this version served?"""
    if client.ready(subject.served_as, subject.version):
        return SmokeCheck("ready", passed=True)
    return SmokeCheck("ready", passed=False, detail=f"the server does not serve version {subject.version}")


def metadata(client: InferenceClient, subject: Subject) -> SmokeCheck:
    """Do the server's names, dtypes and shapes equal the config's?"""
    answer = client.metadata(subject.served_as, subject.version)
    batched = subject.config.max_batch_size > 0
    wrong = [
        *_described("input", tensor_views(subject.config.input), answer.inputs, batched=batched),
        *_described("output", tensor_views(subject.config.output), answer.outputs, batched=batched),
    ]
    if str(subject.version) not in answer.versions:
        wrong.append(f"version {subject.version} is not among {', '.join(answer.versions) or 'none'}")
    return SmokeCheck("metadata", not wrong, "; ".join(wrong))


def config(client: InferenceClient, subject: Subject) -> SmokeCheck:
    """Does the server work by the config it was given? It may fill in defaults."""
    wrong = differences(subject.config, client.config(subject.served_as, subject.version))
    return SmokeCheck("config", not wrong, "; ".join(wrong))


def golden(client: InferenceClient, subject: Subject) -> Iterator[SmokeCheck]:
    """Does every golden case give PyTorch's output?"""
    for case in subject.cases:
        verdict = answer_to(client, subject, case)
        yield SmokeCheck(f"golden {case.name}", verdict.equal, verdict.detail, max_abs_diff=verdict.max_abs_diff)


def answer_to(client: InferenceClient, subject: Subject, case: Case) -> Comparison:
    """Send ``case`` and compare the answer with what it expects."""
    got = client.infer(subject.served_as, subject.version, subject.wire(case.inputs))
    return verdict_on(subject, case, got)


def verdict_on(subject: Subject, case: Case, got: Mapping[str, Array]) -> Comparison:
    """Compare an answer with what ``case`` expects; a backend may return a 0-d output as it is or as ``[1]``."""
    return compare(
        case.outputs, {name: wire_array(array, batched=False) for name, array in got.items()}, subject.tolerances
    )


def _described(
    kind: str, tensors: Iterable[TensorView], answer: Mapping[str, TensorMetadata], *, batched: bool
) -> Iterator[str]:
    wanted = {t.name: (_WIRE.get(t.dtype, t.dtype), (-1, *t.dims) if batched else t.dims) for t in tensors}
    for name in wanted.keys() | answer.keys():
        got = (answer[name].dtype, answer[name].shape) if name in answer else None
        if got != wanted.get(name):
            yield f"{kind} {name!r}: config {_shown(wanted.get(name))}, server {_shown(got)}"


def _shown(described: tuple[str, tuple[int, ...]] | None) -> str:
    return "has none" if described is None else f"{described[0]} {list(described[1])}"
