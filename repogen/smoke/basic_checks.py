"""Checks of every model: it is ready, its metadata and config match config.pbtxt, and its outputs match PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.serving import SmokeCheck
from repogen.artifacts.tensors import DTYPES
from repogen.triton_config.text.compare import differences
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repogen.smoke.deployed_model import DeployedModel
    from repogen.smoke.inference import TensorMetadata
    from repogen.triton_config.text.view import TensorView

_WIRE_DTYPES = {dtype.triton: dtype.wire for dtype in DTYPES.values()}


def ready(model: DeployedModel) -> SmokeCheck:
    """Check that the server serves the version."""
    if model.client.ready(model.name, model.version):
        return SmokeCheck("ready", passed=True)
    return SmokeCheck("ready", passed=False, detail=f"the server does not serve version {model.version}")


def metadata(model: DeployedModel) -> SmokeCheck:
    """Check that the server's names, dtypes and shapes equal the config's."""
    actual = model.client.metadata(model.name, model.version)
    batched = model.config.max_batch_size > 0
    problems = [
        *_mismatches("input", tensor_views(model.config.input), actual.inputs, batched=batched),
        *_mismatches("output", tensor_views(model.config.output), actual.outputs, batched=batched),
    ]
    if str(model.version) not in actual.versions:
        problems.append(f"version {model.version} is not among {', '.join(actual.versions) or 'none'}")
    return SmokeCheck("metadata", not problems, "; ".join(problems))


def config(model: DeployedModel) -> SmokeCheck:
    """Check that the server uses the config; it may add defaults."""
    problems = differences(model.config, model.client.config(model.name, model.version))
    return SmokeCheck("config", not problems, "; ".join(problems))


def golden(model: DeployedModel) -> Iterator[SmokeCheck]:
    """Check that every golden case returns PyTorch's outputs."""
    for case in model.cases:
        comparison = model.compare(case, model.infer(model.wire(case.inputs)))
        yield SmokeCheck(
            f"golden {case.name}", comparison.equal, comparison.detail, max_abs_diff=comparison.max_abs_diff
        )


def _mismatches(
    kind: str, tensors: Iterable[TensorView], metadata: Mapping[str, TensorMetadata], *, batched: bool
) -> Iterator[str]:
    """Yield one line for each tensor whose metadata differ from the config."""
    expected = {t.name: (_WIRE_DTYPES.get(t.dtype, t.dtype), (-1, *t.dims) if batched else t.dims) for t in tensors}
    for name in expected.keys() | metadata.keys():
        actual = (metadata[name].dtype, metadata[name].shape) if name in metadata else None
        if actual != expected.get(name):
            yield f"{kind} {name!r}: config {_describe(expected.get(name))}, server {_describe(actual)}"


def _describe(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "has none" if tensor is None else f"{tensor[0]} {list(tensor[1])}"
