"""Measures what tracking adds to a build: SQLite and `mlflow server` compared with ``--no-track``, in one run.

``make bench-tracking``, or ``python benchmarks/tracking_overhead.py [--rounds 3]``. The server is a real MLflow with
basic auth and proxied artifacts on PostgreSQL, on this machine. It runs twice: ``server, scrypt`` hashes the password
as MLflow does by default, and spends a third of a second of CPU time on each request to check it; ``server`` uses a
hash that is fast to check. Every round builds once with each. The program prints medians with ranges, and the
difference in wall time from ``--no-track`` in the same round.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import yaml
from measure import measure, middle

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from repogen.reporting.table import table  # noqa: E402 - after the path is set
from tests.support.release_server import release_server  # noqa: E402 - the same

if TYPE_CHECKING:
    from tests.support.release_server import ReleaseServer

REPOGEN = str(Path(sys.executable).with_name("repogen"))
MODELS = """\
import torch


def build(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
"""


def project(directory: Path, models: int) -> None:
    """Write a spec of small models that export within a second, so that tracking is a visible part of a build."""
    (directory / "models.py").write_text(MODELS, encoding="utf-8")
    entry = {
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "dims": {"batch": {"min": 1, "max": 8}},
        "export": {"exporter": "torchscript"},
    }
    spec = {
        "mlflow": {"tracking_uri": "sqlite:///mlflow.db"},
        "models": {
            f"m{n}": {**entry, "source": {"factory": "models.py:build", "kwargs": {"width": 8 + n}}}
            for n in range(models)
        },
    }
    (directory / "repogen.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")


def builds(servers: dict[str, ReleaseServer], rounds: int, models: int) -> None:
    """Measure complete builds with and without tracking, and print the results."""
    variants: dict[str, tuple[list[str], dict[str, str]]] = {"--no-track": (["--no-track"], {}), "sqlite": ([], {})}
    variants |= {name: ([], server.environment) for name, server in servers.items()}
    walls: dict[str, list[float]] = defaultdict(list)
    steps: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as folder:
        directory = Path(folder)
        project(directory, models)
        for flags, environment in variants.values():  # creates the database, the experiment and the registered models
            measure([REPOGEN, "build", "--force", "--json", *flags], directory, environment)
        for _ in range(rounds):
            for name, (flags, environment) in variants.items():
                run = measure([REPOGEN, "build", "--force", "--json", *flags], directory, environment)
                walls[name].append(run.wall)
                for model in json.loads(run.stdout)["models"]:
                    steps[name].append(sum(model["seconds"].get(step, 0.0) for step in ("track", "confirm")))
    rows = []
    for name in variants:
        added = [wall - base for wall, base in zip(walls[name], walls["--no-track"], strict=True)]
        ratio = median(wall / base for wall, base in zip(walls[name], walls["--no-track"], strict=True))
        rows.append((name, middle(walls[name]), f"{ratio:.2f}x", f"{median(added) / models:+.2f}", middle(steps[name])))
    print(f"\n{models} models, {rounds} rounds")
    print(table(("tracking", "build s", "ratio", "added s per model", "tracking steps s per model"), rows))


def cases(server: ReleaseServer, rounds: int) -> None:
    """Measure the tracking steps of one model with few and with many parity cases, and print the results."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as folder:
        directory = Path(folder)
        for shape in (["batch", 4], ["batch", "rows", "columns", "depth", 4]):
            project(directory, 1)
            spec = yaml.safe_load((directory / "repogen.yaml").read_text(encoding="utf-8"))
            (model,) = spec["models"].values()
            model["inputs"]["x"]["shape"] = shape
            model["dims"] = {dim: {"min": 1, "max": 8} for dim in shape if isinstance(dim, str)}
            (directory / "repogen.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
            steps = []
            for _ in range(rounds):
                command = [REPOGEN, "build", "--force", "--allow-breaking", "--json"]
                (model_report,) = json.loads(measure(command, directory, server.environment).stdout)["models"]
                steps.append(model_report["seconds"]["track"] + model_report["seconds"]["confirm"])
            rows.append((str(model_report["parity"]["cases"]), middle(steps)))
    print(f"\nparity cases of one model, on the server, {rounds} rounds")
    print(table(("cases", "tracking steps s"), rows))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with release_server() as server, release_server("scrypt") as slow:
        for models in (1, 3):
            builds({"server": server, "server, scrypt": slow}, arguments.rounds, models)
        cases(server, arguments.rounds)


if __name__ == "__main__":
    main()
