"""What tracking adds to a build: sqlite and `mlflow server` against ``--no-track``, side by side in one run.

``make bench-tracking``, or ``python benchmarks/tracking_overhead.py [--rounds 3]``. The server is the real one: MLflow
with basic auth and proxied artifacts on PostgreSQL, on this machine and its cores. There are two: ``scrypt`` keeps the
password as MLflow's basic auth does by itself, and spends a third of a second of a core on every request to check it;
``server`` keeps it under a hash that is quick to check. Every round builds with each in turn; what is printed are
medians, with the range behind them, and the difference of a build's wall time to ``--no-track`` in the same round.
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

from repogen.reporting.table import table  # noqa: E402 - after the path
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
    """Write a spec of small models, which TorchScript exports in a second, so that tracking is seen."""
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
    """Print whole builds."""
    ways: dict[str, tuple[list[str], dict[str, str]]] = {"--no-track": (["--no-track"], {}), "sqlite": ([], {})}
    ways |= {name: ([], server.environment) for name, server in servers.items()}
    walls: dict[str, list[float]] = defaultdict(list)
    steps: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as place:
        directory = Path(place)
        project(directory, models)
        for flags, environment in ways.values():  # creates the database, the experiment and the registered models
            measure([REPOGEN, "build", "--force", "--json", *flags], directory, environment)
        for _ in range(rounds):
            for name, (flags, environment) in ways.items():
                run = measure([REPOGEN, "build", "--force", "--json", *flags], directory, environment)
                walls[name].append(run.wall)
                for model in json.loads(run.stdout)["models"]:
                    steps[name].append(sum(model["seconds"].get(step, 0.0) for step in ("track", "confirm")))
    rows = []
    for name in ways:
        more = [wall - base for wall, base in zip(walls[name], walls["--no-track"], strict=True)]
        ratio = median(wall / base for wall, base in zip(walls[name], walls["--no-track"], strict=True))
        rows.append((name, middle(walls[name]), f"{ratio:.2f}x", f"{median(more) / models:+.2f}", middle(steps[name])))
    print(f"\n{models} models, {rounds} rounds")
    print(table(("tracking", "build s", "ratio", "more s a model", "its steps s a model"), rows))


def cases(server: ReleaseServer, rounds: int) -> None:
    """Print the tracking steps of one model with few parity cases and with many."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as place:
        directory = Path(place)
        for shape in (["batch", 4], ["batch", "rows", "columns", "depth", 4]):
            project(directory, 1)
            spec = yaml.safe_load((directory / "repogen.yaml").read_text(encoding="utf-8"))
            (model,) = spec["models"].values()
            model["inputs"]["x"]["shape"] = shape
            model["dims"] = {dim: {"min": 1, "max": 8} for dim in shape if isinstance(dim, str)}
            (directory / "repogen.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
            steps = []
            for _ in range(rounds):
                command = [REPOGEN, "build", "--force", "--breaking", "--json"]
                (built,) = json.loads(measure(command, directory, server.environment).stdout)["models"]
                steps.append(built["seconds"]["track"] + built["seconds"]["confirm"])
            rows.append((str(built["parity"]["cases"]), middle(steps)))
    print(f"\nparity cases of one model, on the server, {rounds} rounds")
    print(table(("cases", "its steps s"), rows))


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
