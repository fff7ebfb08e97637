"""Golden tensors of a statically quantized ONNX file whose results the installed ONNX Runtime's optimizer changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from repogen.errors import ParityError, SourceError
from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, SEQUENCE_REQUEST, golden_inputs, packed, read_golden
from repogen.source.onnx.reference import FileReference
from repogen.validate.compare import difference

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import OnnxArtifact
    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import Array
    from repogen.worker.target_runtime import TargetRuntime


def record_unoptimized(artifact: OnnxArtifact, source: SourceModel, runtime: TargetRuntime, golden_dir: Path) -> str:
    """Replace the golden outputs by those of the file without optimization, if the target agrees with these.

    The target then computes what the file states, and the installed ONNX Runtime does not. Nothing is replaced for
    requests of a sequence, whose states are outputs of the requests before.

    Args:
        artifact: A graph with which the target disagrees.
        source: The original.
        runtime: The target's ONNX Runtime.
        golden_dir: The golden tensors.

    Returns:
        A note for the report; empty if nothing was replaced.
    """
    reference = source.reference
    golden = read_golden(golden_dir)
    is_sequence = any(SEQUENCE_REQUEST in case.name for case in golden.cases)
    if not isinstance(reference, FileReference) or reference.unoptimized is None or is_sequence:
        return ""
    with np.load(golden_dir / GOLDEN_NPZ) as stored:
        arrays: dict[str, Array] = dict(stored)
    largest = 0.0
    try:
        stated = reference.unoptimized()
        for case, inputs in zip(golden.cases, golden_inputs(golden_dir), strict=True):
            outputs = stated(inputs)
            optimized = {tensor.name: arrays[tensor.key] for tensor in case.outputs}
            largest = max(largest, difference(optimized, outputs, golden.tolerances).max_abs)
            for tensor in case.outputs:
                arrays.update(packed(tensor.key, outputs[tensor.name]))
        candidate = golden_dir.with_name(f"{golden_dir.name}-unoptimized")
        candidate.mkdir(exist_ok=True)
        (candidate / GOLDEN_JSON).write_bytes((golden_dir / GOLDEN_JSON).read_bytes())
        np.savez(candidate / GOLDEN_NPZ, **arrays)  # type: ignore[arg-type] # no key is allow_pickle
        runtime.check(artifact, candidate)
    except (SourceError, ParityError):
        return ""
    (candidate / GOLDEN_NPZ).replace(golden_dir / GOLDEN_NPZ)
    target = runtime.target
    return (
        f"the optimizer of {stated.runtime}, which parity was measured with, changes the results of this quantized "
        f"file, by up to {largest:.3g}; ONNX Runtime {target.onnxruntime} (of Triton {target.release}) computes what "
        "the file states, which is in the golden tensors"
    )
