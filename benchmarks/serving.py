"""How much faster a model is in ONNX Runtime and on Triton than in PyTorch, and what repogen's config gives.

``python benchmarks/serving.py [--models digits,minilm] [--rounds 3] [--seconds 1] [--budget 5m]``. Every round measures
each variant in turn, so that a drift of the machine's speed meets all of them. Prints Markdown: the machine, the
variants of ``repogen bench`` at batch 1 and 8, and the throughput of 16 concurrent requests with Triton's
auto-completed config, with repogen's, and with the one that ``repogen tune`` finds. ``--only`` selects one of the two.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import repogen
from repogen.reporting.bench_text import decimal, interval_text
from repogen.reporting.markdown import bench_markdown
from repogen.reporting.progress import PlainProgress

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
CONFIGS: tuple[Baseline, ...] = ("auto", "spec", "tuned")


def published(example: str, directory: Path) -> Spec:
    """Copy an example, build it into the copy, and return its spec.

    Raises:
        SystemExit: The build failed.
    """
    shutil.copytree(ROOT / "examples" / example, directory, ignore=shutil.ignore_patterns("build", "__pycache__"))
    spec = repogen.load_spec(directory / "repogen.yaml")
    report = repogen.build(spec, repository=directory / REPOSITORY, track=False, progress=PlainProgress())
    if report.exit_code:
        raise SystemExit(f"{example}: {report.models[0].error}")
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


def main() -> None:
    """Build and measure each model, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(EXAMPLES), help="examples, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--budget", default="5m", help="time of `repogen tune` for each model")
    parser.add_argument("--only", choices=("variants", "configs"))
    arguments = parser.parse_args()
    reports = []
    with tempfile.TemporaryDirectory(prefix="repogen-serving-") as scratch:
        for example in arguments.models.split(","):
            model, directory = EXAMPLES[example], Path(scratch) / example
            spec = published(example, directory)
            measurement = {"rounds": arguments.rounds, "seconds": arguments.seconds, "progress": PlainProgress()}
            if arguments.only != "configs":
                print(bench_markdown(bench(spec, model, directory, measurement)), flush=True)
            if arguments.only != "variants":
                reports.append(tune(spec, model, directory, arguments.budget, measurement))
                print(config_table(reports), flush=True)


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
