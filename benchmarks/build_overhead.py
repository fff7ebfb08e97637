"""Compares `repogen build` with a typical hand-written export script: time and memory, side by side in one run.

``make bench``, or ``python benchmarks/build_overhead.py [--rounds 3] [--only overhead|jobs|idle]
[--models resnet18,distilbert] [--exporters dynamo,torchscript]``. Every round runs the script and then repogen, so that
changes in the machine's speed affect both. Ratios are medians of the ratios of the rounds; those of a whole build
compare it with the script that uses the same exporter.

The builds with two shapes check those of the script, and the required cases: a prime for each dim, inputs of zeros, and
a second run that must return the same.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import yaml
from measure import Run, measure, middle

from repogen.reporting.table import table

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
REPOGEN = str(Path(sys.executable).with_name("repogen"))
MODELS = ("resnet18", "distilbert")
ALL = ("digits", "minilm", "resnet18", "distilbert")
EXPORTERS = ("dynamo", "torchscript")


def example(name: str) -> dict[str, dict[str, object]]:
    """Return the models of an example's spec, with absolute paths."""
    directory = ROOT / "examples" / name
    models: dict[str, dict[str, dict[str, object]]] = yaml.safe_load((directory / "repogen.yaml").read_text())["models"]
    for model in models.values():
        source = model["source"]
        source["factory"] = f"{directory}/{source['factory']}"
        if "weights" in source:
            source["weights"] = f"{directory}/{source['weights']}"
        if "examples" in model:
            model["examples"] = f"{directory}/{model['examples']}"  # type: ignore[assignment] # any YAML value
    return models  # type: ignore[return-value] # any YAML value


def write_spec(directory: Path, models: dict[str, dict[str, object]]) -> Path:
    """Write a spec of ``models`` that publishes into ``directory``."""
    path = directory / "repogen.yaml"
    path.write_text(yaml.safe_dump({"repository": "model_repository", "models": models}, sort_keys=False))
    return path


def two_shapes(name: str, exporter: str) -> dict[str, dict[str, object]]:
    """Return an example's models with only the work of the baseline: one exporter, two shapes, no passes."""
    models = example(name)
    for model in models.values():
        model["export"] = {"exporter": exporter}
        model["optimize"] = []
        model["parity"] = {"seeds": 1, "budget_seconds": 0.001}
        model["triton"] = {"max_batch_size": 0}
    return models


def build(spec: Path, *flags: str) -> Run:
    """Run ``repogen build --force --json``."""
    return measure([REPOGEN, "build", str(spec), "--force", "--json", *flags], cwd=spec.parent)


def overhead(name: str, exporters: list[str], rounds: int, scratch: Path) -> None:
    """Print the results for one model."""
    runs: dict[str, list[Run]] = defaultdict(list)
    specs = {}
    for exporter in exporters:
        directory = scratch / f"{name}-{exporter}"
        directory.mkdir()
        specs[exporter] = write_spec(directory, two_shapes(name, exporter))
    whole = scratch / f"{name}-whole"
    whole.mkdir()
    specs["whole"] = write_spec(whole, example(name))
    plain = str(ROOT / "benchmarks" / "plain_export.py")
    tracking = f"sqlite:///{scratch / 'mlflow.db'}"
    measure([sys.executable, "-m", "mlflow", "db", "upgrade", tracking])  # a new database is not a part of a build
    cases: dict[str, Callable[[], Run]] = {}
    for exporter in exporters:
        command = [sys.executable, plain, name, exporter, str(scratch / "plain.onnx")]
        cases[f"plain script, {exporter}"] = partial(measure, command)
        cases[f"repogen --no-smoke, {exporter}, two shapes"] = partial(build, specs[exporter], "--no-smoke")
    cases["repogen --no-smoke, the example's settings"] = partial(build, specs["whole"], "--no-smoke")
    cases["repogen, complete: sweep, passes, smoke"] = partial(build, specs["whole"])
    cases["repogen, complete, with MLflow"] = partial(build, specs["whole"], "--tracking-uri", tracking)
    for _ in range(rounds):
        for label, run in cases.items():
            runs[label].append(run())
    print(f"\n{name}: {rounds} alternating rounds, median (min-max)\n")
    base = {exporter: runs[f"plain script, {exporter}"] for exporter in exporters}
    rows = [_row(label, measured, base) for label, measured in runs.items()]
    print(table(("command", "wall s", "peak RSS MB", "export s", "verify s", "wall ratio", "RSS ratio"), rows))


def _row(label: str, runs: list[Run], base: dict[str, list[Run]]) -> tuple[str, ...]:
    baseline = next((runs for exporter, runs in base.items() if exporter in label), next(iter(base.values())))
    splits = [_split(run) for run in runs]
    return (
        label,
        middle([run.wall for run in runs]),
        middle([run.rss for run in runs]),
        f"{median(export for export, _ in splits):.1f}",
        f"{median(verify for _, verify in splits):.1f}",
        f"{median(a.wall / b.wall for a, b in zip(runs, baseline, strict=True)):.2f}",
        f"{median(a.rss / b.rss for a, b in zip(runs, baseline, strict=True)):.2f}",
    )


def _split(run: Run) -> tuple[float, float]:
    """Return the seconds of export, and of everything after it."""
    document = json.loads(run.stdout)
    if "models" not in document:
        return document["export"], document["verify"]
    seconds = document["models"][0]["seconds"]
    later = ("optimize", "validate", "configure", "stage", "server", "smoke", "track", "publish", "confirm")
    return seconds["export"], sum(seconds.get(step, 0.0) for step in later)


def jobs(rounds: int, scratch: Path) -> None:
    """Compare building four models one at a time with two at a time; print how long a model waits for Triton."""
    directory = scratch / "jobs"
    directory.mkdir()
    merged = {name: model for part in ALL for name, model in example(part).items()}
    spec = write_spec(directory, merged)
    one, two = [], []
    for _ in range(rounds):
        one.append(build(spec, "--jobs", "1"))
        two.append(build(spec, "--jobs", "2"))
    ratio = median(a.wall / b.wall for a, b in zip(two, one, strict=True))
    waits = [m["seconds"]["server"] for run in one for m in json.loads(run.stdout)["models"]]
    print("\nfour models, complete builds\n")
    rows = [
        ("--jobs 1", middle([r.wall for r in one]), middle([r.rss for r in one]), "1.00"),
        ("--jobs 2", middle([r.wall for r in two]), middle([r.rss for r in two]), f"{ratio:.2f}"),
    ]
    print(table(("command", "wall s", "peak RSS MB", "wall ratio"), rows))
    print(f"\nlongest wait of a model for Triton, which starts while models are exported, in seconds: {max(waits):.2f}")


def idle(rounds: int, scratch: Path) -> None:
    """Compare an unchanged build of all examples, and --help, with the imports that any such tool needs."""
    directory = scratch / "idle"
    directory.mkdir()
    merged = {name: model for part in ALL for name, model in example(part).items()}
    spec = write_spec(directory, merged)
    measure([REPOGEN, "build", str(spec), "--no-smoke", "--jobs", "2"])
    commands = {
        'python -c "import yaml, pydantic, jinja2"': [sys.executable, "-c", "import yaml, pydantic, jinja2"],
        "repogen --help": [REPOGEN, "--help"],
        "repogen build, four models unchanged": [REPOGEN, "build", str(spec), "--json"],
    }
    runs: dict[str, list[float]] = defaultdict(list)
    for _ in range(5 * rounds):
        for label, command in commands.items():
            run = measure(command)
            runs[label].append(run.wall)
    if any(model["status"] != "unchanged" for model in json.loads(run.stdout)["models"]):
        raise RuntimeError(f"expected four unchanged models: {run.stdout}")
    base = next(iter(runs.values()))
    print(f"\nnothing to do: {5 * rounds} alternating rounds, median (min-max)\n")
    rows = [
        (
            label,
            f"{median(walls):.2f} ({min(walls):.2f}-{max(walls):.2f})",
            f"{median(a / b for a, b in zip(walls, base, strict=True)):.2f}",
        )
        for label, walls in runs.items()
    ]
    print(table(("command", "wall s", "ratio"), rows))


def main() -> None:
    """Run the selected benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("overhead", "jobs", "idle"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--exporters", default=",".join(EXPORTERS))
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="repogen-bench-"))
    try:
        if arguments.only in (None, "idle"):
            idle(arguments.rounds, scratch)
        if arguments.only in (None, "overhead"):
            for name in arguments.models.split(","):
                overhead(name, arguments.exporters.split(","), arguments.rounds, scratch)
        if arguments.only in (None, "jobs"):
            jobs(arguments.rounds, scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
