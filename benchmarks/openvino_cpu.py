"""How much faster OpenVINO runs published graphs on this CPU than ONNX Runtime, both in this process.

``pip install openvino``, then ``python benchmarks/openvino_cpu.py build/demo/model_repository [--rounds 9]``. Triton's
ONNX Runtime backend has OpenVINO as an accelerator, and the embedded server does not: this program measures the
possible gain. Each round runs both on the same inputs, the first golden case, in alternating order and with the same
number of threads. Their outputs are compared.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import openvino
from measure import middle

from repogen.artifacts.file_names import MODEL_FILE
from repogen.machine import available_processors
from repogen.reporting.table import table
from repogen.repository.golden import first_golden_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from repogen.artifacts.tensors import Arrays

    Outputs = dict[str, np.ndarray]
    Model = Callable[[Arrays], Outputs]

_SECONDS = 0.5
"""Length of one measurement."""


def in_onnxruntime(path: Path, threads: int) -> Model:
    """Return the graph in ONNX Runtime, with default options."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def in_openvino(path: Path, threads: int, precision: str) -> Model:
    """Return the graph in OpenVINO, optimized for latency, with products in ``precision``."""
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    request = compiled.create_infer_request()
    names = [output.any_name for output in compiled.outputs]

    def run(inputs: Arrays) -> Outputs:
        results = request.infer(dict(inputs))
        return {name: results[index] for index, name in enumerate(names)}

    return run


def seconds_per_run(model: Model, inputs: Arrays) -> float:
    """Return the median seconds of a run over half a second."""
    seconds: list[float] = []
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        started = time.perf_counter()
        model(inputs)
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def rows(repository: Path, rounds: int, threads: int, precision: str) -> Iterator[list[str]]:
    """Yield a row for each graph of a repository."""
    for path in sorted(repository.glob(f"*/*/{MODEL_FILE}")):
        inputs = first_golden_inputs(path.parent, batched=False)
        if inputs is None:
            continue
        models = [in_onnxruntime(path, threads), in_openvino(path, threads, precision)]
        expected, actual = (model(inputs) for model in models)
        error = max(float(np.max(np.abs(expected[name] - actual[name]), initial=0.0)) for name in expected)
        times = measured(models, inputs, rounds)
        ratios = [ours / theirs for ours, theirs in zip(*times, strict=True)]
        figures = [f"{1000 * median(seconds):.2f}" for seconds in times]
        yield [path.parent.parent.name, *figures, middle(ratios), f"{error:.1e}"]


def measured(models: Sequence[Model], inputs: Arrays, rounds: int) -> list[list[float]]:
    """Return the seconds per run of each model in each round; the first round warms up and is not counted."""
    times: list[list[float]] = [[] for _ in models]
    for number in range(rounds + 1):
        order = range(len(models)) if number % 2 else reversed(range(len(models)))
        for index in order:
            seconds = seconds_per_run(models[index], inputs)
            if number:
                times[index].append(seconds)
    return times


def main() -> None:
    """Measure the graphs of a repository."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=available_processors())
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    options = parser.parse_args()
    print(f"ONNX Runtime {onnxruntime.__version__}, OpenVINO {openvino.__version__}, {options.threads} threads")
    header = ["model", "ONNX Runtime ms", "OpenVINO ms", "ONNX Runtime : OpenVINO", "largest difference"]
    print(table(header, list(rows(options.repository, options.rounds, options.threads, options.precision))))


if __name__ == "__main__":
    main()
