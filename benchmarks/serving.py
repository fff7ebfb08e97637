"""How much faster a model is in ONNX Runtime and on Triton than in PyTorch, and what repogen's config gives.

``python benchmarks/serving.py [--models digits,minilm] [--rounds 3] [--seconds 1] [--budget 5m]``. Every round measures
each variant in turn, so that a change in the machine's speed affects all of them. Prints Markdown: the machine, the
variants of ``repogen bench`` at batch 1 and 8, and the throughput of 16 concurrent requests with Triton's
auto-completed config, with repogen's, and with the one that ``repogen tune`` finds; and the same throughput with
matrix products in 8 bits. ``--only`` selects one of the three.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import repogen
from repogen.artifacts.progress import Silent
from repogen.bench.server import ServerChoice
from repogen.bench.statistics import estimate
from repogen.reporting.bench_text import decimal, interval_text
from repogen.reporting.markdown import bench_markdown
from repogen.reporting.progress import PlainProgress
from repogen.serving.install import locate
from repogen.serving.perf_analyzer import install_perf_analyzer
from repogen.targets import DEFAULT_RELEASE, targets
from repogen.tune.comparison import compare
from repogen.tune.space import current_settings
from repogen.tune.triton import LoadShape, TritonTestBed

if TYPE_CHECKING:
    from repogen.artifacts.bench import BenchReport
    from repogen.artifacts.tune import Baseline, TuneReport
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
REPOSITORY = "model_repository"
COLUMNS = (
    *("model", "auto-complete", "repogen default", "repogen tuned", "tuned : auto", "tuned : default"),
    *("p99 ms, auto", "p99 ms, default", "p99 ms, tuned"),
)
INT8_HEADER = (
    f"Rows per second at {CONCURRENCY} concurrent requests of one row, over gRPC, with repogen's settings:",
    "",
    "| model | auto-complete, float32 | repogen, float32 | repogen, int8 | int8 : auto | int8 : float32 |",
    "|---|---:|---:|---:|---:|---:|",
)
CONFIGS: tuple[Baseline, ...] = ("auto", "spec", "tuned")
INT8 = ("minilm", "distilbert")
QUALITY = """\
import numpy as np
import torch
from models import build, examples


def cosine(predict, data):
    model, similarities = build(), []
    for seed, (batch, sequence) in enumerate([(1, 8), (1, 48), (4, 16), (8, 32)]):
        inputs = examples(batch, sequence, seed)
        with torch.no_grad():
            expected = model(*map(torch.from_numpy, inputs.values()))
        expected = getattr(expected, "logits", expected).numpy()
        (actual,) = predict(inputs).values()
        norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
        similarities.append((actual * expected).sum(1) / norms)
    return float(np.concatenate(similarities).min())
"""


def published(example: str, directory: Path, *, int8: bool = False) -> Spec:
    """Copy an example, with a budget for int8 if it has large products of matrices; build it, and return its spec.

    Args:
        example: Name of the example.
        directory: Where the copy goes.
        int8: Whether to run the products of matrices in 8 bits.

    Raises:
        SystemExit: The build failed, or dropped the pass.
    """
    shutil.copytree(ROOT / "examples" / example, directory, ignore=shutil.ignore_patterns("build", "__pycache__"))
    if example in INT8:
        path = directory / "repogen.yaml"
        budget = 'quality: {callable: "quality.py:cosine", max_drop: 0.05}'
        text = path.read_text(encoding="utf-8")
        passes = f"optimize: [onnxsim{', {name: int8-dynamic, gain: false}' if int8 else ''}]"
        path.write_text(text.replace("optimize: [onnxsim]", f"{budget}\n    {passes}"), encoding="utf-8")
        (directory / "quality.py").write_text(QUALITY, encoding="utf-8")
    spec = repogen.load_spec(directory / "repogen.yaml")
    report = repogen.build(spec, repository=directory / REPOSITORY, track=False, progress=PlainProgress())
    (model,) = report.models
    if report.exit_code or (int8 and model.lossy is None):
        raise SystemExit(f"{example}: {model.error or model.passes}")
    return spec


def config_row(report: TuneReport) -> str:
    """Return the row of a model: throughput and p99 of each config, and the ratios of the same round."""
    rows = {row.name: row for row in report.comparison}
    rows.setdefault("spec", rows["tuned"])  # the settings of the spec are the best ones
    configs = [rows.get(name) for name in CONFIGS]
    throughputs = ["-" if row is None else interval_text(row.throughput) for row in configs]
    ratios = ["-" if row is None else interval_text(row.ratio) for row in configs[:2]]
    if not report.improved and rows["spec"] is not rows["tuned"]:
        throughputs[-1] += ", not used"  # `repogen tune` changes nothing
    tails = ["-" if row is None else decimal(row.p99.value) for row in configs]
    return f"| {' | '.join([report.model, *throughputs, *ratios, *tails])} |"


def config_table(reports: list[TuneReport]) -> str:
    """Return the throughput of each model and config as Markdown, and the settings that were chosen."""
    lines = [
        f"Rows per second at {CONCURRENCY} concurrent requests of one row, over gRPC:",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *map(config_row, reports),
        "",
    ]
    for report in reports:
        chosen = next(trial for trial in report.trials if trial.number == report.chosen)
        settings = ", ".join(f"{name} {value}" for name, value in chosen.settings.items())
        lines.append(f"- {report.model}: {len(report.trials)} trials; {settings}")
        lines += [f"- {report.model}: {note}" for note in report.notes]
    return "\n".join(lines)


def int8_row(example: str, scratch: Path, rounds: int, seconds: float) -> str:
    """Publish an example in float32 and in int8, and compare the throughput of both with the auto-completed config."""
    model, target = EXAMPLES[example], targets()[DEFAULT_RELEASE]
    program = install_perf_analyzer(locate(target.onnxruntime), Silent())
    choice = ServerChoice("embedded", target, Silent())
    beds = []
    for precision in ("float32", "int8"):
        directory, work = scratch / f"{example}-{precision}", scratch / f"work-{example}-{precision}"
        work.mkdir()
        spec = published(example, directory, int8=precision == "int8")
        shape = LoadShape(1, CONCURRENCY)
        beds.append(TritonTestBed(spec, model, directory / REPOSITORY / model, 1, choice, program, shape, work))
    configs = {"auto": beds[0].open_automatic} | {
        name: partial(bed.open, current_settings(bed.model))
        for name, bed in zip(("float32", "int8"), beds, strict=True)
    }
    measured = compare(configs, rounds, seconds).rounds
    throughputs = [interval_text(estimate([each.throughput for each in figures])) for figures in measured.values()]
    ratios = [
        interval_text(
            estimate([a.throughput / b.throughput for a, b in zip(measured["int8"], measured[other], strict=True)])
        )
        for other in ("auto", "float32")
    ]
    return f"| {' | '.join([model, *throughputs, *ratios])} |"


def main() -> None:
    """Build and measure each model, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(EXAMPLES), help="examples, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--budget", default="5m", help="time of `repogen tune` for each model")
    parser.add_argument("--only", choices=("variants", "configs", "int8"))
    arguments = parser.parse_args()
    reports = []
    with tempfile.TemporaryDirectory(prefix="repogen-serving-") as scratch:
        examples = arguments.models.split(",")
        for example in examples if arguments.only != "int8" else ():
            model, directory = EXAMPLES[example], Path(scratch) / example
            spec = published(example, directory)
            measurement = {"rounds": arguments.rounds, "seconds": arguments.seconds, "progress": PlainProgress()}
            if arguments.only != "configs":
                print(bench_markdown(bench(spec, model, directory, measurement)), flush=True)
            if arguments.only != "variants":
                reports.append(tune(spec, model, directory, arguments.budget, measurement))
                print(config_table(reports), flush=True)
        rows = [
            int8_row(example, Path(scratch), arguments.rounds, arguments.seconds)
            for example in examples
            if example in INT8 and arguments.only in (None, "int8")
        ]
        if rows:
            print(*INT8_HEADER, *rows, sep="\n")


def bench(spec: Spec, model: str, directory: Path, measurement: dict[str, Any]) -> BenchReport:
    """Measure the variants of a model."""
    return repogen.bench(
        [model], spec=spec, repository=directory / REPOSITORY, batch=BATCHES, concurrency=[1], **measurement
    )


def tune(spec: Spec, model: str, directory: Path, budget: str, measurement: dict[str, Any]) -> TuneReport:
    """Tune a model, and compare the configs.

    Raises:
        SystemExit: They were not compared.
    """
    report = repogen.tune(
        model,
        spec=spec,
        repository=directory / REPOSITORY,
        budget=budget,
        concurrency=CONCURRENCY,
        restart=True,
        track=False,
        **measurement,
    )
    if not any(row.name == "tuned" for row in report.comparison):
        raise SystemExit(f"{model}: {report.error or report.notes}")
    return report


if __name__ == "__main__":
    main()
