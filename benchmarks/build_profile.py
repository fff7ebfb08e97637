"""Prints where the time of a build goes: seconds per step, and what the worker imports, for a commit before and now.

``python benchmarks/build_profile.py [--models tiny,digits,resnet18,distilbert] [--rounds 1] [--before COMMIT]``. The
steps are those of ``repogen build --json``. Every round runs both versions.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from build_overhead import ROOT, example, write_spec
from measure import Run, checkout, repogen

from repogen.reporting.table import table

STEPS = ("worker", "source", "export", "optimize", "validate", "stage", "smoke")
TINY_CODE = """\
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 10)
    )
"""
TINY = {
    "source": {"factory": "models.py:build"},
    "inputs": {"image": {"dtype": "float32", "shape": ["batch", 1, 8, 8]}},
    "outputs": ["logits"],
    "dims": {"batch": {"min": 1, "max": 16}},
    "triton": {"instance_group": [{"count": 1, "kind": "KIND_CPU"}]},
}
IMPORTS = """\
import repogen.worker.sequence
import repogen.source.torch.loader, torch._dynamo, torch.onnx
import torch.export._trace, torch.onnx._internal.exporter._torchlib.ops
"""


def spec_of(name: str, scratch: Path) -> Path:
    """Write the spec of a model; ``tiny`` is a CNN with random weights, the others are examples."""
    directory = scratch / name
    directory.mkdir()
    if name != "tiny":
        return write_spec(directory, example(name))
    (directory / "models.py").write_text(TINY_CODE)
    return write_spec(directory, {"tiny": TINY})


def imports(version: Path) -> list[tuple[float, int, str]]:
    """Return the packages that cost most in a worker: seconds, modules, name."""
    command = [sys.executable, "-X", "importtime", "-c", IMPORTS]
    run = subprocess.run(command, env={"PYTHONPATH": str(version)}, capture_output=True, text=True, check=True)
    seconds: dict[str, float] = defaultdict(float)
    modules: dict[str, int] = defaultdict(int)
    for own, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \| +(\S+)", run.stderr):
        package = name.partition(".")[0]
        seconds[package] += int(own) / 1e6
        modules[package] += 1
    return sorted(((seconds[name], modules[name], name) for name in seconds), reverse=True)


def row(label: str, runs: list[Run]) -> tuple[str, ...]:
    """Return one line of the table: medians over the rounds."""
    seconds = [json.loads(run.stdout)["models"][0]["seconds"] for run in runs]
    steps = (f"{median(each.get(step, 0.0) for each in seconds):.2f}" for step in STEPS)
    totals = (median(run.wall for run in runs), median(run.cpu for run in runs))
    return (label, *steps, *(f"{total:.1f}" for total in totals), f"{median(run.rss for run in runs):.0f}")


def profile(names: list[str], rounds: int, before: Path | None, scratch: Path) -> list[tuple[str, ...]]:
    """Build every model with both versions, alternately."""
    versions = {"before": before, "now": ROOT}
    rows = []
    for name in names:
        spec = spec_of(name, scratch)
        runs: dict[str, list[Run]] = defaultdict(list)
        for _ in range(rounds):
            for version, path in versions.items():
                if path is not None:
                    arguments = ("build", str(spec), "--force", "--no-track", "--json")
                    runs[version].append(repogen(path, *arguments, REPOGEN_CACHE_GB="0"))
        rows += [row(f"{name}, {version}", measured) for version, measured in runs.items()]
        if before is not None:
            pairs = list(zip(runs["now"], runs["before"], strict=True))
            ratios = (median(a.wall / b.wall for a, b in pairs), median(a.cpu / b.cpu for a, b in pairs))
            memory = median(a.rss / b.rss for a, b in pairs)
            rows.append((f"{name}, ratio", *("" for _ in STEPS), *(f"{r:.2f}" for r in ratios), f"{memory:.2f}"))
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="tiny,resnet18,distilbert")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", help="commit to compare with")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="repogen-bench-")))
        before = stack.enter_context(checkout(arguments.before)) if arguments.before else None
        rows = profile(arguments.models.split(","), arguments.rounds, before, scratch)
        print(f"seconds per step, medians of {arguments.rounds} rounds\n")
        print(table(("build", *STEPS, "wall s", "CPU s", "peak RSS MB"), rows))
        costs = imports(ROOT)
    print("\nimports of a worker\n")
    total = (f"{sum(cost[0] for cost in costs):.2f}", str(sum(cost[1] for cost in costs)), "all")
    print(table(("seconds", "modules", "package"), [total, *((f"{s:.2f}", str(n), name) for s, n, name in costs[:12])]))


if __name__ == "__main__":
    main()
