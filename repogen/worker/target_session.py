"""Loads a graph in ONNX Runtime and runs golden cases; a process of its own, in the target release's environment.

Runs on the Python 3.10-3.12 of the embedded Triton, and imports only the standard library, the target's NumPy and ONNX
Runtime, and ``repogen/onnx_graph/session.py``, which imports no more. The job is JSON on standard input; each line on
standard output is JSON as well.
"""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any


def main() -> None:
    """Report the shapes of the outputs, then the start of each case, or the error."""
    job = json.load(sys.stdin)
    sys.path.insert(0, job["site"])
    import numpy as np  # noqa: PLC0415 - importable from now on
    import onnxruntime  # noqa: PLC0415 - the same

    run = runpy.run_path(job["session"])["run"]
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = job["threads"]
    options.log_severity_level = 4
    _report(version=onnxruntime.__version__)
    try:
        session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        _report(shapes={output.name: output.shape for output in session.get_outputs()})
        arrays = np.load(job["golden"], allow_pickle=False) if job["cases"] else {}
        results: dict[str, Any] = {}
        for index, case in enumerate(job["cases"]):
            _report(case=index)
            inputs = {name: arrays[key] for name, key in case["inputs"].items()}
            outputs = run(session, list(case["outputs"]), inputs)
            results |= dict(zip(case["outputs"].values(), outputs, strict=True))
        if results:
            np.savez(job["results"], **results)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime raises many classes of its binding
        _report(error=str(error))


def _report(**event: Any) -> None:  # noqa: ANN401 - JSON
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
