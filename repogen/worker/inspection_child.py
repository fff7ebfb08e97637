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


def inspect(job_json: bytes, send: Callable[[bytes], None]) -> None:
    """Load the job's model and send the result."""
    send(EVENT.dump_json(_result(JOB.validate_json(job_json))))


def _result(job: InspectionJob) -> Inspection:
    warnings.simplefilter("ignore")
    try:
        from repogen.source.load import load_source  # noqa: PLC0415 - torch may be missing, which is reported below

        source = load_source(job.model, job.root)
    except RepogenError as error:
        return Inspection(error=error.record)
    except BaseException as error:  # noqa: BLE001 - the process ends here, and the parent reports the error
        details = traceback.format_exc()
        return Inspection(error=RepogenError(f"{type(error).__name__}: {first_line(error)}", details=details).record)
    dims = {name: (dim.min, dim.max) for name, dim in source.dims.items()}
    return Inspection(source.signature, dims, source.notes)


if __name__ == "__main__":
    run_supervised(inspect)
