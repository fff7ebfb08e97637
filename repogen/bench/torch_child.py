"""The process of PyTorch: loads a model of a spec, compares its outputs with the published ones, and runs it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from repogen.artifacts.source import Eager, Program, Script
from repogen.bench.jobs import EVENT, TORCH_JOB, RunnerEvent, TorchJob
from repogen.bench.loop import follow
from repogen.errors import BenchError, RepogenError
from repogen.repository.golden import GOLDEN_JSON, first_golden_inputs, golden_arrays, read_golden, unpacked
from repogen.source.common.callables import RAISED, user_error
from repogen.source.load import load_source
from repogen.source.torch.flat import FlatModule
from repogen.validate.compare import difference
from repogen.worker.subreaper import run_supervised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

    Call = Callable[[], object]


def work(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Warm the model up, and measure until the pipe is closed."""
    job = TORCH_JOB.validate_json(job_json)

    def report(event: RunnerEvent) -> None:
        send(EVENT.dump_json(event))

    try:
        torch.set_num_threads(job.threads)
        module, source = _load(job)
        with torch.inference_mode():
            calls = {batch: _call(module, _tensors(source, job, path)) for batch, path in job.inputs.items()}
            report(RunnerEvent("ready", version=torch.__version__, note=_warm_up(calls, compiled=job.compiled)))
            follow(str(job.commands), lambda batch: calls[batch](), lambda t: report(RunnerEvent("round", tuple(t))))
    except RepogenError as error:
        report(RunnerEvent("failed", error=error.record))
    except RAISED as error:
        failure = user_error(error, "the PyTorch model failed", job.root, "bench.runner")
        report(RunnerEvent("failed", error=failure.record))


def _load(job: TorchJob) -> tuple[torch.nn.Module, SourceModel]:
    """Return the module to measure, and its source, whose outputs are those of the published version."""
    source = load_source(job.model, job.root, job.fetched, work_dir=job.work_dir)
    module = _module(source)
    _check_outputs(source, job)
    torch.backends.mha.set_fastpath_enabled(True)  # as PyTorch has it; the reference runs without it
    return (compile_module(module) if job.compiled else module), source


def _warm_up(calls: Mapping[int, Call], *, compiled: bool) -> str:
    """Call each batch size once; return a note about the compilation."""
    began = time.monotonic()
    for call in calls.values():
        call()
    sizes = "size" if len(calls) == 1 else "sizes"
    duration = f"{time.monotonic() - began:.0f} s for {len(calls)} batch {sizes}"
    return f"torch.compile took {duration}" if compiled else ""


def _module(source: SourceModel) -> torch.nn.Module:
    match source.origin:
        case Eager() | Program():
            return source.origin.module
        case Script():
            return source.origin.traced
        case _:
            raise BenchError("its source has no PyTorch module", code="bench.runner")


def compile_module(module: torch.nn.Module) -> torch.nn.Module:
    """Compile a module for fixed sizes, which gives torch.compile its best case."""
    torch.compiler.set_stance("default")  # repogen.source.torch.module changes it
    inner = module.module if isinstance(module, FlatModule) else module
    compiled = cast("torch.nn.Module", torch.compile(inner, dynamic=False))
    return module.of(compiled) if isinstance(module, FlatModule) else compiled


def _call(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> Call:
    """Return a call of the user's own module, without the wrapper of the export."""
    if isinstance(module, FlatModule):
        positional, keywords = module.call.fill(tuple(tensors))
        return partial(module.module, *positional, **keywords)
    return partial(module, *tensors)


def _tensors(source: SourceModel, job: TorchJob, path: Path) -> list[torch.Tensor]:
    """Return inputs in the order of the signature."""
    with np.load(path, allow_pickle=False) as arrays:
        keys = [str(job.names.index(spec.name)) for spec in source.signature.inputs]
        return [torch.from_numpy(arrays[key]) for key in keys]


def _check_outputs(source: SourceModel, job: TorchJob) -> None:
    """Compare the model's outputs with the published golden outputs.

    Raises:
        BenchError: They differ, so the spec's model is not the published one.
    """
    if not (job.version_dir / GOLDEN_JSON).is_file():  # repogen did not build it
        return
    inputs = first_golden_inputs(job.version_dir, job.batched) or {}
    golden = read_golden(job.version_dir)
    arrays = golden_arrays(job.version_dir)
    case = next(case for case in golden.cases if case.batch > 0 or not job.batched)
    expected = {tensor.name: unpacked(arrays, tensor.key) for tensor in case.outputs}
    result = difference(expected, source.reference(inputs), golden.tolerances)
    if result.reason:
        raise BenchError(
            f"the model of the spec is not the published one: {result.reason}",
            "publish it with `repogen build`",
            code="bench.other-model",
        )


if __name__ == "__main__":
    run_supervised(work)
