"""The inspection process: reads an ``InspectionJob``, loads the model, and sends an ``Inspection``."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING

from repogen.errors import RepogenError, first_line
from repogen.worker.inspection import EVENT, JOB, Inspection, InspectionJob
from repogen.worker.subreaper import run_supervised

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.spec.models import ModelSpec

_MAX_BATCH = 32


def inspect(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Load the job's model and send the result."""
    send(EVENT.dump_json(_result(JOB.validate_json(job_json))))


def _result(job: InspectionJob) -> Inspection:
    warnings.simplefilter("ignore")
    try:
        from repogen.source.load import load_source  # noqa: PLC0415 - torch may be missing, which is reported below

        source = load_source(job.model, job.root)
        source = _with_batch(job, source, load_source) or source
    except RepogenError as error:
        return Inspection(error=error.record)
    except BaseException as error:  # noqa: BLE001 - the process ends here, and the parent reports the error
        details = traceback.format_exc()
        return Inspection(error=RepogenError(f"{type(error).__name__}: {first_line(error)}", details=details).record)
    dims = {name: (dim.min, dim.max) for name, dim in source.dims.items()}
    return Inspection(source.signature, dims, source.notes)


def _with_batch(
    job: InspectionJob, source: SourceModel, load_source: Callable[[ModelSpec, Path], SourceModel]
) -> SourceModel | None:
    """Return a model with a batch, if its examples are one file, and it accepts another size of their first axis.

    The examples have one size, which does not show whether the axis is dynamic.
    """
    from repogen.source.common.dim_names import BATCH  # noqa: PLC0415 - after `load_source`, whose errors are reported

    inputs, examples = source.signature.inputs, job.model.examples
    sizes = {tensor.shape[0] if tensor.shape else None for tensor in inputs}
    size = next(iter(sizes), None)
    if job.model.inputs or not isinstance(examples, str) or ":" in examples or len(sizes) != 1 or type(size) is not int:
        return None
    other = size + 1 if size < _MAX_BATCH else _MAX_BATCH - 1
    values = {
        **job.model.model_dump(by_alias=True, exclude_unset=True),
        "inputs": {each.name: {"dtype": each.dtype, "shape": [BATCH, *each.shape[1:]]} for each in inputs},
        "dims": {BATCH: {"min": 1, "max": _MAX_BATCH, "example": other}},
    }
    try:
        batched = load_source(type(job.model).model_validate(values), job.root)
    except RepogenError:
        return None
    follows = all(each.shape and each.shape[0] in {BATCH, other} for each in batched.signature.outputs)
    return batched if follows else None


if __name__ == "__main__":
    run_supervised(inspect)
