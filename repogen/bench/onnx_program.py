"""Runs a graph in ONNX Runtime with the Python and the packages of the embedded Triton, as a process of its own.

The command line is ``python onnx_program.py FD JOB``: the file descriptor to write events to, and a JSON file. Imports
only the standard library, NumPy and ONNX Runtime of that environment, and ``loop.py``.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Load the graph, warm it up at each batch size, and measure until the pipe is closed."""
    events, job = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))

    def report(**event: Any) -> None:  # noqa: ANN401 - JSON
        os.write(events, (json.dumps(event) + "\n").encode())

    try:
        run, version = _load(job)
        report(kind="ready", version=version)
        runpy.run_path(job["loop"])["follow"](job["commands"], run, lambda times: report(kind="round", latencies=times))
    except Exception as error:  # noqa: BLE001 - ONNX Runtime raises many classes of its binding
        report(kind="failed", error={"code": "bench.runner", "message": str(error)[:2000]})


def _load(job: dict[str, Any]) -> tuple[Any, str]:
    """Return a function that runs one batch, and ONNX Runtime's version."""
    sys.path.insert(0, job["site"])
    import numpy as np  # noqa: PLC0415 - importable from now on
    import onnxruntime  # noqa: PLC0415 - the same

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
    feeds = {}
    for batch, path in job["inputs"].items():
        with np.load(path, allow_pickle=False) as arrays:
            feeds[int(batch)] = {name: arrays[str(index)] for index, name in enumerate(job["names"])}

    def run(batch: int) -> None:
        session.run(None, feeds[batch])

    for batch in feeds:
        run(batch)
    return run, onnxruntime.__version__


if __name__ == "__main__":
    main()
