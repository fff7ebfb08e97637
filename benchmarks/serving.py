"""How much faster a model is in ONNX Runtime and on Triton than in PyTorch, and what repogen's config gives.

``python benchmarks/serving.py [--models digits,minilm] [--rounds 3] [--seconds 1]``. Every round measures each variant
in turn, so that a drift of the machine's speed meets all of them. Prints Markdown: the machine, the variants of
``repogen bench`` at batch 1 and 8, and the throughput of 16 concurrent requests with Triton's auto-completed config and
with repogen's.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import repogen
from repogen.bench.inputs import golden_inputs
from repogen.bench.load import Load, load_target, measure
from repogen.bench.server import ServerChoice, serve_model
from repogen.bench.statistics import estimate
from repogen.reporting.bench_text import decimal, interval_text
from repogen.reporting.markdown import bench_markdown
from repogen.reporting.progress import PlainProgress
from repogen.serving.commands import recorded_target
from repogen.serving.install import locate
from repogen.serving.perf_analyzer import install_perf_analyzer
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from repogen.artifacts.bench import Sample
    from repogen.spec.models import Spec

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "digits": "digits_cnn",
    "resnet18": "resnet18",
    "minilm": "minilm",
    "distilbert": "distilbert",
}
"""Directory of an example -> its model."""
BATCHES = (1, 8)
CONCURRENCY = 16


def published(example: str, directory: Path) -> Spec:
    """Build an example into ``directory``, and return its spec.

    Raises:
        SystemExit: The build failed.
    """
    spec = repogen.load_spec(ROOT / "examples" / example / "repogen.yaml")
    report = repogen.build(spec, repository=directory, track=False, progress=PlainProgress())
    if report.exit_code:
        raise SystemExit(f"{example}: {report.models[0].error}")
    return spec


def configs(model: str, directory: Path, rounds: int, seconds: float) -> dict[str, list[Sample]]:
    """Return the samples of a model with each config, measured in turn on two servers of the same release."""
    progress = PlainProgress()
    choice = ServerChoice("embedded", recorded_target(directory), progress)
    program = install_perf_analyzer(locate(targets()[DEFAULT_RELEASE].onnxruntime), progress)
    minimal = text_format.Parse(f'name: "{model}" backend: "onnxruntime"', ModelConfig())
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="repogen-serving-")))
        default = stack.enter_context(serve_model(choice, directory / model))
        automatic = stack.enter_context(serve_model(choice, directory / model, minimal))
        inputs = golden_inputs(default)
        servers = {"auto-complete": automatic, "repogen default": default}
        loads = {name: load_target(program, served, inputs, scratch / name) for name, served in servers.items()}
        samples: dict[str, list[Sample]] = {name: [] for name in servers}
        for number in range(rounds + 1):
            progress.step(model, f"configs, round {number} of {rounds}")
            for name, target in loads.items():
                sample = measure(target, Load("grpc", 1, CONCURRENCY, seconds))
                samples[name] += [sample] if number else []
    return samples


def config_table(results: dict[str, dict[str, list[Sample]]]) -> str:
    """Return the throughput of each model and config as Markdown; the ratio is that of the same round."""
    lines = [
        f"Rows per second at {CONCURRENCY} concurrent requests of one row, over gRPC:",
        "",
        "| model | auto-complete | repogen default | ratio | p99 ms, auto-complete | p99 ms, repogen default |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for model, samples in results.items():
        before, after = samples["auto-complete"], samples["repogen default"]
        ratios = [b.throughput / a.throughput for a, b in zip(before, after, strict=True)]
        throughputs = [interval_text(estimate([s.throughput for s in each])) for each in (before, after)]
        tails = [decimal(estimate([s.p99 for s in each]).value) for each in (before, after)]
        lines.append(f"| {' | '.join([model, *throughputs, interval_text(estimate(ratios)), *tails])} |")
    return "\n".join(lines)


def main() -> None:
    """Build and measure each model, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(EXAMPLES), help="examples, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="repogen-serving-") as scratch:
        for example in arguments.models.split(","):
            model, directory = EXAMPLES[example], Path(scratch) / example / "model_repository"
            report = repogen.bench(
                [model],
                spec=published(example, directory),
                repository=directory,
                batch=BATCHES,
                concurrency=[1],
                rounds=arguments.rounds,
                seconds=arguments.seconds,
                progress=PlainProgress(),
            )
            print(bench_markdown(report), flush=True)
            results[model] = configs(model, directory, arguments.rounds, arguments.seconds)
    print(config_table(results))


if __name__ == "__main__":
    main()
