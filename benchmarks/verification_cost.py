"""Counts what the verification of a graph computes: parity, row independence and golden tensors, before and now.

``python benchmarks/verification_cost.py [--models resnet18,distilbert] [--rounds 1] [--before COMMIT]``. The unit of
computation is a row of the example size: a batch of 16 images of 224 x 224 pixels counts 16, of 112 x 112 pixels
4. Counts do not depend on the machine, because the budget of the sweep allows all cases (``parity.budget_seconds``
is set to 3600).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from build_overhead import ROOT, example, write_spec
from measure import checkout, measure

from repogen.reporting.table import table

PROGRAM = """\
import json, sys, time, warnings
from dataclasses import replace
from pathlib import Path

from repogen.export.fallback_chain import export_with, fallback_chain
from repogen.onnx_graph.normalize import NormalizeOptions
from repogen.source.load import load_source
from repogen.spec.load import load_spec
from repogen.spec.models import ExportSpec
from repogen.targets import target_of
from repogen.validate.runtime import OnnxModel
from repogen.validate.validation import validate

warnings.simplefilter("ignore")
path, scratch = Path(sys.argv[1]), Path(sys.argv[2])
spec = load_spec(path)
((_, model),) = spec.models.items()
model = model.model_copy(update={"parity": model.parity.model_copy(update={"budget_seconds": 3600.0})})
source = load_source(model, spec.root, None, {}, scratch)
export = ExportSpec(exporter="torchscript")
options = NormalizeOptions(source.signature, target_of(spec.release), external_data=False, exporter="torchscript")
artifact = export_with(fallback_chain(source.origin, export)[0], source, export, options, scratch)
dims = source.example_sizes | {source.signature.batch_dim: 1}
unit = sum(array.size for array in source.examples(dims, 0).values())
calls = {"PyTorch": [], "ONNX Runtime": []}


def counted(name, function):
    def call(*arguments):
        calls[name].append(sum(array.size for array in arguments[-1].values()) / unit)
        return function(*arguments)

    return call


def memory(key):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[key].split()[0]) / 1024


OnnxModel.__call__ = counted("ONNX Runtime", OnnxModel.__call__)
source = replace(source, reference=counted("PyTorch", source.reference))
Path("/proc/self/clear_refs").write_text("5")  # the peak of memory starts again
before, cpu, wall = memory("VmRSS"), time.process_time(), time.monotonic()
validation = validate(artifact, source, model, scratch / "golden")
document = {
    "calls": {name: len(sizes) for name, sizes in calls.items()},
    "rows": {name: sum(sizes) for name, sizes in calls.items()},
    "cpu": time.process_time() - cpu,
    "wall": time.monotonic() - wall,
    "memory": memory("VmHWM") - before,
    "batch": validation.batch.max_batch_size,
}
print(json.dumps(document))
"""


def verify(version: Path, spec: Path) -> dict[str, Any]:
    """Verify a model with a version, and return what was counted."""
    environment = {"PYTHONPATH": str(version), "OMP_WAIT_POLICY": "PASSIVE"}
    with tempfile.TemporaryDirectory(prefix="repogen-bench-") as scratch:
        run = measure([sys.executable, "-P", "-c", PROGRAM, str(spec), scratch], environment=environment)
    document: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return document


def row(label: str, runs: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return one line of the table: counts, and medians over the rounds."""
    calls, rows = runs[0]["calls"], runs[0]["rows"]
    return (
        label,
        *(str(count) for count in calls.values()),
        *(f"{count:.0f}" for count in rows.values()),
        *(f"{median(run[key] for run in runs):.1f}" for key in ("cpu", "wall")),
        f"{median(run['memory'] for run in runs):.0f}",
    )


def ratios(label: str, now: list[dict[str, Any]], before: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the ratios of what was counted and measured."""
    pairs = list(zip(now, before, strict=True))
    counts = [now[0][key][name] / before[0][key][name] for key in ("calls", "rows") for name in now[0][key]]
    medians = [median(a[key] / b[key] for a, b in pairs) for key in ("cpu", "wall", "memory")]
    return (label, *(f"{ratio:.2f}" for ratio in (*counts, *medians)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="resnet18,distilbert")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", help="commit to compare with")
    arguments = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="repogen-bench-")))
        versions = {"before": stack.enter_context(checkout(arguments.before))} if arguments.before else {}
        versions["now"] = ROOT
        for name in arguments.models.split(","):
            (scratch / name).mkdir()
            spec = write_spec(scratch / name, example(name))
            runs: dict[str, list[dict[str, Any]]] = {label: [] for label in versions}
            for _ in range(arguments.rounds):
                for label, version in versions.items():
                    runs[label].append(verify(version, spec))
            rows += [row(f"{name}, {label}", measured) for label, measured in runs.items()]
            if arguments.before:
                rows.append(ratios(f"{name}, ratio", runs["now"], runs["before"]))
    columns = ("PyTorch calls", "ONNX Runtime calls", "PyTorch rows", "ONNX Runtime rows")
    print(table(("verification", *columns, "CPU s", "wall s", "peak memory MB"), rows))


if __name__ == "__main__":
    main()
