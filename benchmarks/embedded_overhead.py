"""What the embedded Triton adds to one request: Triton's Python backend, repogen's backend, and threads.

``python benchmarks/embedded_overhead.py [--rounds 14] [--seconds 1]``. Builds the digits example twice, without dynamic
batching and with one instance: with one thread and with two. A model for Triton's Python backend that returns zeros has
the same inputs and outputs. Each has its own server, and ONNX Runtime runs the same graph in a process without a
server. Every round measures each of them in turn, one request of one row at a time, over gRPC with perf_analyzer.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import repogen
from repogen.artifacts.progress import Silent
from repogen.bench.in_process import InProcess, Subject
from repogen.bench.inputs import golden_inputs
from repogen.bench.load import Load, LoadTarget, load_target, measure
from repogen.bench.machine import describe_machine
from repogen.bench.server import ServerChoice, serve_model
from repogen.serving.install import locate
from repogen.serving.perf_analyzer import install_perf_analyzer
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.artifacts.bench import Sample

ROOT = Path(__file__).resolve().parent.parent
THREADS = {"digits_1": 1, "digits_2": 2}
"""Model -> threads of an operator."""
LABELS = {
    "zeros": "Python model that returns zeros: the cost of Triton's Python backend itself",
    "digits_1": "digits, `intra_op_thread_count: 1`",
    "digits_2": "digits, 2 threads",
    "onnxruntime": "digits in ONNX Runtime, in process",
}
MODEL = """\
  {name}:
    source: {{factory: models.py:build, kwargs: {{width: 16}}, weights: digits_cnn.safetensors}}
    inputs:
      image: {{dtype: float32, shape: [batch, 1, 8, 8]}}
    examples: examples.npz
    outputs: [logits]
    dims:
      batch: {{min: 1, max: 32}}
    optimize: [onnxsim]
    triton:
      max_batch_size: 32
      instance_group: [{{count: 1, kind: KIND_CPU}}]
      parameters: {{intra_op_thread_count: {threads}}}
"""
ZEROS_CONFIG = """\
name: "zeros"
backend: "python"
max_batch_size: 32
input [ { name: "image" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] } ]
output [ { name: "logits" data_type: TYPE_FP32 dims: [ 10 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
ZEROS_MODEL = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            zeros = pb_utils.Tensor("logits", np.zeros((len(image), 10), np.float32))
            responses.append(pb_utils.InferenceResponse([zeros]))
        return responses
"""


def write_models(directory: Path) -> dict[str, Path]:
    """Build the models; return the directory of each.

    Raises:
        SystemExit: The build failed.
    """
    project = directory / "digits"
    shutil.copytree(ROOT / "examples" / "digits", project, ignore=shutil.ignore_patterns("build", "__pycache__"))
    models = "".join(MODEL.format(name=name, threads=threads) for name, threads in THREADS.items())
    (project / "repogen.yaml").write_text(f"models:\n{models}", encoding="utf-8")
    repository = project / "model_repository"
    spec = repogen.load_spec(project / "repogen.yaml")
    report = repogen.build(spec, repository=repository, track=False, progress=Silent())
    if report.exit_code:
        raise SystemExit(f"the build failed: {[model.error for model in report.models]}")
    zeros = directory / "plain" / "zeros"
    (zeros / "1").mkdir(parents=True)
    (zeros / "config.pbtxt").write_text(ZEROS_CONFIG, encoding="utf-8")
    (zeros / "1" / "model.py").write_text(ZEROS_MODEL, encoding="utf-8")
    return {"zeros": zeros} | {name: repository / name for name in THREADS}


def one_request(target: LoadTarget, seconds: float) -> Sample:
    """Measure one request of one row at a time, over gRPC."""
    return measure(target, Load("grpc", 1, 1, seconds))


def measurements(directory: Path, stack: ExitStack) -> dict[str, Callable[[float], Sample | None]]:
    """Start servers and ONNX Runtime, which end with the stack.

    Returns:
        Name -> a function that measures for some seconds; it returns None if ONNX Runtime failed.
    """
    target = targets()[DEFAULT_RELEASE]
    choice, program = (
        ServerChoice("embedded", target, Silent()),
        install_perf_analyzer(locate(target.onnxruntime), Silent()),
    )
    result: dict[str, Callable[[float], Sample | None]] = {}
    for name, model in write_models(directory).items():
        served = stack.enter_context(serve_model(choice, model))
        inputs = golden_inputs(served)
        load = load_target(program, served, inputs, directory / f"{name}.json")
        result[name] = partial(one_request, load)
        if name == "digits_2":
            (directory / "work").mkdir()
            subject = Subject(served, inputs, (1,), None, target, directory / "work")
            in_process = stack.enter_context(InProcess(subject))
            result["onnxruntime"] = partial(in_process.measure, "onnxruntime", 1)
    return result


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    arguments = parser.parse_args()
    machine = describe_machine()
    latencies: dict[str, list[float]] = {name: [] for name in LABELS}
    with tempfile.TemporaryDirectory(prefix="repogen-overhead-") as scratch, ExitStack() as stack:
        functions = measurements(Path(scratch), stack)
        for number in range(arguments.rounds + 1):
            for name in reversed(LABELS) if number % 2 else LABELS:
                sample = functions[name](arguments.seconds)
                if sample is None:
                    raise SystemExit(f"{name} failed")
                if number:  # the first round warms up
                    latencies[name].append(sample.p50)
    busy = f"{machine.load:g} cores were in use at the start"
    print(f"{machine.cpu}, {machine.cores} cores, {busy}; {arguments.rounds} rounds of {arguments.seconds:g} s\n")
    print("| Model on Triton | Median of p50, ms | Lowest p50, ms |\n|---|---:|---:|")
    for name, label in LABELS.items():
        print(f"| {label} | {median(latencies[name]):.3f} | {min(latencies[name]):.3f} |")


if __name__ == "__main__":
    main()
