"""The passes that are considered for a model, and which builds with them can be chosen."""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from repogen.artifacts.built_model import Lossy, PassOutcome, Quality
from repogen.artifacts.progress import Silent
from repogen.artifacts.report import ModelReport, Status
from repogen.bench.server import ServerChoice
from repogen.errors import ErrorRecord, RepogenError
from repogen.spec.load import load_spec
from repogen.spec.models import ModelSpec, PassSpec
from repogen.spec.sources import TorchSource
from repogen.targets import target_of
from repogen.tune.passes import PassBuilds, PassList, obstacle, pass_lists
from repogen.tune.triton import LoadShape, TritonTestBed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.versions import Manifest

ROOT = Path(__file__).resolve().parents[3]
NAME = "digits_cnn"
SOURCE = TorchSource(factory="models.py:build")
QUALITY = {"callable": "quality.py:accuracy", "max_drop": 0.01}
LOSSLESS = ["ort-fusions", "onnxruntime-offline", "ir-cleanup", "onnxsim"]
INT8 = ["int8-dynamic", "int8-dynamic+ort-fusions"]


def lists_of(optimize: object = (), *, has_gpu: bool = False, **values: object) -> dict[str, PassList]:
    """Return the lists for a model, by name."""
    model = TypeAdapter(ModelSpec).validate_python({"source": SOURCE, "optimize": optimize, **values})
    lists = pass_lists(model, has_gpu=has_gpu)
    assert len({each.name for each in lists}) == len(lists)
    return {each.name: each for each in lists}


def test_without_a_budget_every_pass_is_lossless() -> None:
    """The spec has no passes, so the published graph is the one without them."""
    assert list(lists_of(has_gpu=True)) == LOSSLESS


def test_lossy_passes_need_a_budget_or_the_spec() -> None:
    """fp16 is for GPUs."""
    assert list(lists_of(quality=QUALITY)) == [*INT8, *LOSSLESS]
    assert list(lists_of(quality=QUALITY, has_gpu=True)) == [*INT8, "fp16", *LOSSLESS]
    assert list(lists_of([{"name": "int8-dynamic", "gain": False}])) == [INT8[1], *LOSSLESS, "none"]
    assert list(lists_of("auto", quality=QUALITY)) == [*INT8, *LOSSLESS, "none"]
    assert list(lists_of("auto")) == [*LOSSLESS, "none"]


def test_entries_are_not_measured_and_keep_their_options() -> None:
    """A pass that is not gated needs no key for it."""
    options = {"exclude": ["head"]}
    static = {"calibration": "data.npz"}
    lists = lists_of(
        ["onnxsim", {"name": "int8-dynamic", "options": options}, {"name": "int8-static", "options": static}]
    )
    assert lists["onnxsim"].passes == (PassSpec(name="onnxsim"),)
    assert lists["int8-dynamic"].passes == (PassSpec(name="int8-dynamic", options=options, gain=False),)
    assert lists["int8-static"].passes == (PassSpec(name="int8-static", options=static, gain=False),)
    own = lists["onnxsim+int8-dynamic+int8-static"]
    assert (own.complete, own.names) == (False, ("onnxsim", "int8-dynamic", "int8-static"))
    assert [each.gain for each in own.passes] == [None, False, False]


def test_list_of_the_spec_is_not_built_again() -> None:
    """It gave the published graph, unless a measurement of time decided."""
    assert "onnxsim" not in lists_of(["onnxsim"])
    assert "ort-fusions" not in lists_of([{"name": "ort-fusions", "gain": False}])
    assert not lists_of(["ort-fusions"])["ort-fusions"].complete


@pytest.fixture
def bed(tmp_path: Path) -> TritonTestBed:
    """Return the test bed of a copy of the committed example."""
    spec = load_spec(ROOT / "examples" / "digits" / "repogen.yaml")
    directory = tmp_path / "model_repository" / NAME
    shutil.copytree(ROOT / "model_repository" / NAME, directory)
    choice = ServerChoice("embedded", target_of(spec.release), Silent())
    return TritonTestBed(spec, NAME, directory, 1, choice, Path("unused"), LoadShape(1, 1), tmp_path)


@dataclass
class Builder:
    """A PassBuilder that returns reports in order.

    Attributes:
        reports: The reports, or the errors to raise.
        reason: Why the published version is outdated.
        built: The lists that were built.
    """

    reports: deque[ModelReport | RepogenError] = field(default_factory=deque)
    reason: str = ""
    built: list[tuple[str, ...]] = field(default_factory=list)

    def outdated(self, repository: Path, version: int) -> str:
        """Return the reason."""
        assert (repository.name, version) == ("model_repository", 1)
        return self.reason

    def build(self, passes: tuple[PassSpec, ...], repository: Path, progress: Progress) -> ModelReport:
        """Return the next report."""
        progress.step(NAME, "export")
        self.built.append(tuple(each.name for each in passes))
        report = self.reports.popleft()
        if isinstance(report, RepogenError):
            raise report
        (repository / NAME / "1").mkdir(parents=True)
        return report


def manifest_of(bed: TritonTestBed, digest: str, **values: Any) -> Manifest:
    """Return the manifest of the published version with another graph."""
    manifest = bed.manifest
    files = tuple(replace(each, sha256=digest) if each.path == "model.onnx" else each for each in manifest.files)
    provenance = replace(manifest.provenance, lossy=values.pop("lossy", None))
    return replace(manifest, files=files, provenance=provenance, **values)


def built(manifest: Manifest, *outcomes: PassOutcome) -> ModelReport:
    """Return the report of a build."""
    return ModelReport(NAME, Status.PUBLISHED, version=1, manifest=manifest, passes=outcomes)


def outcome(name: str, reason: str = "") -> PassOutcome:
    """Return the outcome of a pass, which was applied if there is no reason."""
    return PassOutcome(name, applied=not reason, nodes_before=3, nodes_after=3, reason=reason)


def pass_list(*names: str, complete: bool = True) -> PassList:
    """Return a list of passes."""
    entries = tuple(PassSpec(name=name, gain=False) for name in names)
    return PassList("+".join(names) or "none", entries, complete)


def run(bed: TritonTestBed, builder: Builder, *lists: PassList, clock: Iterator[float] | None = None) -> dict[str, str]:
    """Build the lists; return the reason of each candidate that cannot be chosen, or an empty text."""
    directory = bed.work_dir / "passes"
    directory.mkdir(exist_ok=True)
    builds = PassBuilds(bed, builder, directory, Silent())
    if clock is not None:
        builds.clock = lambda: next(clock)
    try:
        builds.run(lists, (), 10.0)
    finally:
        remaining = {entry.parent.name for entry in directory.glob(f"*/{NAME}")}
        assert remaining == {graph.directory.parent.name for graph in bed.graphs.values()}
        assert builds.passes.keys() == bed.graphs.keys()
    assert builds.candidates[0].sha256 == bed.manifest.sha256
    return {each.name: each.reason for each in builds.candidates}


def test_built_graphs_are_served_instead_of_the_published_one(bed: TritonTestBed) -> None:
    """The values of the parameter, with what was measured of their outputs."""
    lossy = Lossy(("int8-dynamic",), "qint8", Quality(0.98, 0.975, 0.01))
    int8 = built(manifest_of(bed, "a", lossy=lossy), outcome("int8-dynamic"))
    builder = Builder(deque([int8, built(manifest_of(bed, "b"), outcome("onnxsim"))]))
    builds = PassBuilds(bed, builder, bed.work_dir, Silent())
    builds.run((pass_list("int8-dynamic"), pass_list("onnxsim")), ("ir-cleanup",), 10.0)

    assert bed.model.passes == ("int8-dynamic", "onnxsim")
    assert [each.name for each in builds.candidates] == ["spec", "int8-dynamic", "onnxsim"]
    assert builds.candidates[0].passes == ("ir-cleanup",)
    assert str(builds.candidates[1]).startswith("lossy: int8-dynamic, quality 0.98 -> 0.975 (budget 0.01); in ")
    assert str(builds.candidates[2]).startswith("parity in ")
    assert bed.graphs["onnxsim"].directory == bed.work_dir / "2" / NAME
    assert bed.graphs["onnxsim"].graphs == {}
    assert builds.passes["onnxsim"] == (PassSpec(name="onnxsim", gain=False),)


def test_results_that_cannot_be_chosen(bed: TritonTestBed) -> None:
    """Each has its reason, and its files are removed."""
    failed = ModelReport(NAME, Status.FAILED, error=ErrorRecord("parity.drift", "outputs differ:\n  y", exit_code=4))
    first = bed.manifest.signature.outputs[0]
    other = replace(bed.manifest.signature, outputs=(replace(first, dtype="float16"),))
    reports = deque[ModelReport | RepogenError](
        [
            failed,
            built(manifest_of(bed, "a"), outcome("ir-cleanup", "it changed nothing")),
            built(manifest_of(bed, "b", max_batch_size=0), outcome("ort-fusions")),
            built(manifest_of(bed, "c", signature=other), outcome("onnxruntime-offline")),
            built(bed.manifest),
            built(manifest_of(bed, "d"), outcome("fp16")),
            built(manifest_of(bed, "d"), outcome("int8-dynamic", "no measured gain")),
        ]
    )
    reasons = run(
        bed,
        Builder(reports),
        *map(pass_list, ("onnxsim", "ir-cleanup", "ort-fusions", "onnxruntime-offline")),
        pass_list(),
        pass_list("fp16"),
        pass_list("int8-dynamic", complete=False),
    )
    batch = bed.manifest.max_batch_size
    difference = reasons.pop("onnxruntime-offline")
    assert first.name in difference
    assert reasons == {
        "spec": "",
        "onnxsim": "outputs differ",
        "ir-cleanup": "ir-cleanup was not applied: it changed nothing",
        "ort-fusions": f"max_batch_size would be 0 instead of {batch}",
        "none": "same graph as spec",
        "fp16": "",
        "int8-dynamic": "same graph as fp16",
    }


def test_list_that_begins_with_a_dropped_one_is_not_built(bed: TritonTestBed) -> None:
    """The pass would be dropped again."""
    builder = Builder(deque([built(manifest_of(bed, "a"), outcome("int8-dynamic", "it exceeds its budget"))]))
    reasons = run(bed, builder, pass_list("int8-dynamic"), pass_list("int8-dynamic", "ort-fusions"))
    assert builder.built == [("int8-dynamic",)]
    assert reasons["int8-dynamic+ort-fusions"] == "int8-dynamic was not applied: it exceeds its budget"


def test_builds_end_with_their_time(bed: TritonTestBed) -> None:
    """A build that has begun is completed."""
    builder = Builder(deque([built(manifest_of(bed, "a"), outcome("onnxsim"))]))
    clock = iter([0.0, 9.0, 9.0, 99.0, 99.0])
    reasons = run(bed, builder, pass_list("onnxsim"), pass_list("ort-fusions"), clock=clock)
    assert reasons["onnxsim"] == ""
    assert "half of --budget" in reasons["ort-fusions"]


def test_error_of_the_machine_keeps_earlier_graphs(bed: TritonTestBed) -> None:
    """The other lists would fail in the same way."""
    builder = Builder(deque([built(manifest_of(bed, "a"), outcome("onnxsim")), RepogenError("no torch")]))
    with pytest.raises(RepogenError, match="no torch"):
        run(bed, builder, pass_list("onnxsim"), pass_list("ort-fusions"), pass_list("fp16"))
    assert list(bed.graphs) == ["onnxsim"]


def test_obstacles(bed: TritonTestBed) -> None:
    """Each is a reason for a note; no build begins."""
    builder = Builder()
    assert obstacle(bed, builder) == ""
    outdated = obstacle(bed, Builder(reason="models.py changed"))
    assert outdated == "version 1 no longer matches the spec (models.py changed); run `repogen build` first"
    (bed.version_dir / "model.onnx.data").touch()
    assert "separate file" in obstacle(bed, builder)
    (bed.version_dir / "model.onnx").rename(bed.version_dir / "model.py")
    assert "no ONNX graph" in obstacle(bed, builder)
    assert builder.built == []
