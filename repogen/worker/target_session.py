"""Loads graphs in ONNX Runtime and runs golden cases; a process of its own, in the target release's environment.

Runs on the Python 3.10-3.12 of the embedded Triton, and imports only the standard library, the target's NumPy and ONNX
Runtime, and ``repogen/onnx_graph/session.py``, which imports no more. Each line on standard input is JSON: where these
packages are, then jobs until the end of the input. Each line on standard output is JSON as well.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO


def main() -> None:
    """Answer each job with the shapes of the outputs, then the start of each case, or the error, and the end."""
    # what libraries print must not be read as an event
    report = partial(_report, os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    environment = json.loads(sys.stdin.readline())
    sys.path.insert(0, environment["site"])
    run = runpy.run_path(environment["session"])["run"]
    for line in sys.stdin:
        _answer(json.loads(line), environment["threads"], run, report)
        report(done=True)


def _answer(
    job: dict[str, Any], threads: int, run: Callable[[Any, list[str], Any], list[Any]], report: Callable[..., None]
) -> None:
    import numpy as np  # noqa: PLC0415 - importable only now
    import onnxruntime  # noqa: PLC0415 - the same

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        report(shapes={output.name: output.shape for output in session.get_outputs()})
        arrays = np.load(job["golden"], allow_pickle=False) if job["cases"] else {}
        results: dict[str, Any] = {}
        for index, case in enumerate(job["cases"]):
            report(case=index)
            inputs = {name: arrays[key] for name, key in case["inputs"].items()}
            outputs = run(session, list(case["outputs"]), inputs)
            results |= dict(zip(case["outputs"].values(), outputs, strict=True))
        if results:
            np.savez(job["results"], **results)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime raises many classes of its binding
        report(error=str(error))


def _report(stream: TextIO, **event: Any) -> None:  # noqa: ANN401 - JSON
    stream.write(json.dumps(event) + "\n")
    stream.flush()


if __name__ == "__main__":
    main()
