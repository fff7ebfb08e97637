"""Measures builds of many models: the cost of each model before and now, an edit of ``triton:``, no change.

``python benchmarks/many_models.py [--counts 10,100,300] [--mixed 10] [--unchanged 1000] [--jobs 1] [--before COMMIT]``.
Every count is built by both versions in turn, without smoke tests, which cost the same in both. The versions for the
unchanged builds are copies of one that was built, with the manifests that builds of the other models would have.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import yaml
from build_overhead import ALL, ROOT, example, write_spec
from build_profile import TINY, TINY_CODE
from measure import Run, checkout, repogen

from repogen.build.fingerprint import current_inputs
from repogen.reporting.table import table
from repogen.repository.manifest import manifest_to_json, read_manifest
from repogen.serving.install import cache_root
from repogen.spec.load import load_spec


def write_models(directory: Path, count: int, instances: int = 1) -> Path:
    """Write a spec of small models, each with weights of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    code = TINY_CODE.replace("def build():", "def build(seed=0):").replace("manual_seed(0)", "manual_seed(seed)")
    (directory / "models.py").write_text(code)
    triton = {"instance_group": [{"count": instances, "kind": "KIND_CPU"}]}
    models = {f"model_{n:04}": {"source": {"factory": "models.py:build", "kwargs": {"seed": n}}} for n in range(count)}
    defaults = {key: value for key, value in TINY.items() if key != "source"} | {"triton": triton}
    document = {"repository": "model_repository", "models": models, "defaults": defaults}
    path = directory / "repogen.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def build(version: Path, spec: Path, cache: Path, jobs: int, *flags: str) -> Run:
    """Build a spec with a cache of its own."""
    arguments = ("build", str(spec), "--no-smoke", "--no-track", "--json", "--jobs", str(jobs), *flags)
    return repogen(version, *arguments, REPOGEN_CACHE_DIR=str(cache))


def new_cache(directory: Path) -> Path:
    """Return a cache without verified models, which has the embedded Tritons of this machine."""
    directory.mkdir()
    (directory / "triton").symlink_to(cache_root())
    return directory


def steps(run: Run, step: str) -> int:
    """Return the number of models that ran a step."""
    return sum(step in model["seconds"] for model in json.loads(run.stdout)["models"])


def measure_counts(counts: list[int], versions: dict[str, Path], jobs: int, scratch: Path) -> list[tuple[str, ...]]:
    """Build each number of models with each version, and then again after an edit of ``triton:``."""
    rows: list[tuple[str, ...]] = []
    base: dict[str, float] = {}
    for count in counts:
        costs: dict[str, float] = {}
        for label, version in versions.items():
            directory = scratch / f"{count}-{label}"
            spec = write_models(directory, count)
            cache = new_cache(directory / "cache")
            first = build(version, spec, cache, jobs)
            write_models(directory, count, instances=2)
            edited = build(version, spec, cache, jobs)
            costs[label] = first.cpu / count
            base.setdefault(label, costs[label])
            figures = (f"{first.wall / count:.2f}", f"{first.cpu / count:.2f}", f"{costs[label] / base[label]:.2f}")
            later = (f"{edited.cpu / count:.2f}", str(steps(edited, "export")))
            rows.append((str(count), label, *figures, f"{first.rss:.0f}", *later))
        if len(costs) > 1:
            rows.append((str(count), "ratio of CPU", "", f"{costs['now'] / costs['before']:.2f}", *[""] * 4))
    return rows


def measure_mixed(count: int, versions: dict[str, Path], jobs: int, scratch: Path) -> list[tuple[str, ...]]:
    """Build the examples with each version, several times under other names, without the cache of verified models."""
    named = [(name, model) for part in ALL for name, model in example(part).items()]
    models = {f"{name}_{n}": model for n, (name, model) in enumerate(islice(cycle(named), count))}
    rows: list[tuple[str, ...]] = []
    runs = {}
    for label, version in versions.items():
        directory = scratch / f"mixed-{label}"
        directory.mkdir()
        arguments = ("build", str(write_spec(directory, models)), "--no-smoke", "--no-track", "--json")
        runs[label] = run = repogen(version, *arguments, "--jobs", str(jobs), REPOGEN_CACHE_GB="0")
        rows.append((str(count), label, f"{run.wall / count:.2f}", f"{run.cpu / count:.2f}", f"{run.rss:.0f}"))
    if len(runs) > 1:
        ratios = [runs["now"].wall / runs["before"].wall, runs["now"].cpu / runs["before"].cpu]
        rows.append((str(count), "ratio", *(f"{ratio:.2f}" for ratio in ratios), ""))
    return rows


def copy_versions(spec_file: Path, name: str) -> None:
    """Publish a version of every other model of a spec: the files of one that was built, under the other's name."""
    spec = load_spec(spec_file)
    model = spec.repository / name
    manifest = read_manifest(model / "1")
    for other in spec.models.keys() - {name}:
        target = spec.repository / other
        shutil.copytree(model, target)
        config = (model / "config.pbtxt").read_bytes().replace(name.encode(), other.encode())
        for folder in (target, target / "1"):
            (folder / "config.pbtxt").write_bytes(config)
        files = tuple(
            replace(record, sha256=hashlib.sha256(config).hexdigest(), size=len(config))
            if record.path == "config.pbtxt"
            else record
            for record in manifest.files
        )
        recorded = manifest.provenance.fingerprint
        inputs = recorded | current_inputs(recorded, spec, other)
        provenance = replace(manifest.provenance, fingerprint=inputs, spec_sha256=inputs["spec"])
        copy = replace(manifest, model=other, files=files, provenance=provenance)
        (target / "1" / "manifest.json").write_text(manifest_to_json(copy), encoding="utf-8")


def measure_unchanged(count: int, scratch: Path) -> list[tuple[str, ...]]:
    """Publish versions of all models, and measure unchanged builds of a part and of all of them."""
    directory = scratch / "unchanged"
    spec = write_models(directory, count)
    cache = new_cache(directory / "cache")
    build(ROOT, spec, cache, 1, "--model", "model_0000")
    copy_versions(spec, "model_0000")
    rows: list[tuple[str, ...]] = []
    for part in sorted({max(count // 10, 1), count // 2, count}):
        selection = [flag for n in range(part) for flag in ("--model", f"model_{n:04}")] if part < count else []
        run = build(ROOT, spec, cache, 2, *selection)
        models = json.loads(run.stdout)["models"]
        if len(models) != part or any(model["status"] != "unchanged" for model in models):
            raise RuntimeError("expected unchanged models")
        rows.append((str(part), f"{run.wall:.2f}", f"{run.cpu:.2f}", f"{1000 * run.wall / part:.1f}"))
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="10,100,300")
    parser.add_argument("--mixed", type=int, default=10)
    parser.add_argument("--unchanged", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--before", help="commit to compare with")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="repogen-bench-")))
        versions = {"before": stack.enter_context(checkout(arguments.before))} if arguments.before else {}
        versions["now"] = ROOT
        if arguments.counts:
            counts = [int(count) for count in arguments.counts.split(",")]
            rows = measure_counts(counts, versions, arguments.jobs, scratch)
            columns = ("wall s/model", "CPU s/model", "growth", "peak RSS MB", "CPU s/model, triton: edited")
            print(table(("models", "version", *columns, "exports then"), rows), flush=True)
        if arguments.mixed:
            print("\nexamples\n")
            rows = measure_mixed(arguments.mixed, versions, arguments.jobs, scratch)
            print(table(("models", "version", "wall s/model", "CPU s/model", "peak RSS MB"), rows), flush=True)
        if arguments.unchanged:
            print("\nunchanged builds\n")
            print(table(("models", "wall s", "CPU s", "ms/model"), measure_unchanged(arguments.unchanged, scratch)))


if __name__ == "__main__":
    main()
