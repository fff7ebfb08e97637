"""The HTML reports: self-contained, escaped, and with a table for every plot."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import shutil
from dataclasses import asdict, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.bench import BenchReport, BenchRow, Estimate, Machine, ModelBench, Unmeasured
from repogen.artifacts.built_model import (
    ErrorDistribution,
    ExportAttempt,
    FileRecord,
    Gain,
    OutputDifference,
    ParityCase,
    ParityReport,
    PassOutcome,
    Quality,
)
from repogen.artifacts.inventory import ModelRecord, VersionRecord, VersionsReport
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.serving import Latency, SmokeCheck, SmokeReport
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.tuning import (
    ComparedConfig,
    LossyRecord,
    PassRecord,
    TrialFigures,
    TrialRecord,
    TuningRecord,
)
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import ErrorRecord
from repogen.reporting.html.charts import Point, Series, plane
from repogen.reporting.html.config_rows import config_fields
from repogen.reporting.html.page import MAX_MODELS, build_page, repository_page
from repogen.reporting.html.repository_sections import MAX_VERSIONS
from repogen.reporting.json import as_dict
from repogen.reporting.results import (
    REPORTS,
    Results,
    build_document,
    read_results,
    result_file,
    write_bench_results,
    write_build_results,
    write_file,
)

X = "\"'><script src=https://evil.example/x.js></script><img src=http://evil.example onerror=alert(1)>&"
X += "\x1b\u202e\udc80{{7*7}}"
"""A string that ends attributes and tags, and contains what a terminal, an editor or a template could interpret."""
SIGNATURE = Signature((TensorSpec(X, "float32", (X, 4)),), (TensorSpec(X, "float32", ("batch", 10)),))
FILES = (FileRecord("model.onnx", "0" * 64, 100),)
ESTIMATE = Estimate(2.0, 1.5, 2.5)


def manifest_of(number: int = 1, **fingerprint: str) -> Manifest:
    """Return a manifest with hostile texts."""
    origin = Provenance({X: X}, X, "", {X: X, "weights": str(number), **fingerprint}, X, X, 20, 9, 4, 3, 2, 1e-6, 1e-5)
    return Manifest(X, 8, SIGNATURE, (FileRecord("model.onnx", f"{number:064x}", 100),), origin)


PARITY = ParityReport(
    (
        ParityCase("batch=2 seed=0", 0.0, 0.0, 1.0, True, "", {X: 2}, (OutputDifference(X, 0.0, 0.0),)),  # noqa: FBT003
        ParityCase("batch=2 seed=1", 2e-6, 1e-6, 1.0, True, "", {X: 2}, (OutputDifference(X, 2e-6, 1e-6),)),  # noqa: FBT003
    ),
    outputs=(ErrorDistribution(X, 1e-3, 1e-5, 3, {-60: 1, -12: 16}),),
)
MODEL = ModelReport(
    X,
    Status.FAILED,
    version=3,
    sha256="ab",
    exporter=X,
    opset=20,
    max_batch_size=8,
    parity_cases=2,
    parity_skipped=(X,),
    attempts=(
        ExportAttempt(X, ok=False, reason=X, seconds=1.0),
        ExportAttempt("torchscript", ok=True, reason="", seconds=1),
    ),
    passes=(
        PassOutcome(
            *(X, True, 3, 2),
            gain=Gain(2.0, 1.0, 2.0, 1.9, 2.1, 1.02),
            quality=Quality(0.9, 0.89, 0.01),
            operators_before={X: 2, "Relu": 1},
            operators_after={X: 1, "Relu": 1},
        ),
        PassOutcome("dropped", applied=False, nodes_before=2, nodes_after=2, reason=X),
    ),
    notes=(X,),
    smoke=SmokeReport(
        X, 3, X, X, X, (SmokeCheck(X, passed=False, detail=X, max_abs_diff=float("nan")),), (X,), Latency(1, 2, 3, 9)
    ),
    seconds={"export": 3.0, X: 2.0},
    error=ErrorRecord("parity.drift", X, X, X, 4),
    parity=PARITY,
    operators={X: 1},
    config=f'name: "{X}"  # {X}\nmax_batch_size: 8\n',
    manifest=manifest_of(),
)
BENCH = BenchReport(
    Path("r"),
    Machine(X, 2, 2**30, 0.5, X, {X: X}),
    rounds=3,
    seconds=0.5,
    models=(
        ModelBench(
            *(X, 3),
            rows=tuple(
                BenchRow(variant, 8, concurrency, *(ESTIMATE,) * 4, ratio=None, requests=9)
                for variant in ("onnxruntime", "grpc")
                for concurrency in (1, 4)
            ),
            unmeasured=(Unmeasured("shm", X),),
            baseline="onnxruntime",
            memory_bytes={X: 2**20},
            server=X,
            notes=(X,),
        ),
    ),
)
TUNING = TuningRecord(
    *(X, 3, "throughput", 8, 16),
    constraints=(X,),
    passes=(PassRecord(X, None, 9, 1e-6, LossyRecord(X)), PassRecord(X, X)),
    trials=(
        TrialRecord(1, "spec", {X: X}, "measured", TrialFigures(100.0, 5.0)),
        TrialRecord(2, "search", {X: 2}, "measured", TrialFigures(200.0, 4.0)),
        TrialRecord(3, "search", {}, "stopped", TrialFigures(50.0, 9.0), (X,)),
    ),
    pareto=(2,),
    chosen=2,
    comparison=(ComparedConfig("tuned", *(ESTIMATE,) * 3), ComparedConfig(X, *(ESTIMATE,) * 4)),
    diff=X,
    notes=(X,),
)
BUILD = BuildReport(Path(X), (MODEL,), ErrorRecord("tracking", X, X, exit_code=8), (X,))
RESULTS = {X: Results(None, as_dict(BENCH), TUNING)}  # type: ignore[arg-type] # a document


class Page(HTMLParser):
    """Collects tags, attributes and texts of a page.

    Attributes:
        tags: Names of the tags.
        attributes: Tag, name and value of each attribute.
        text: The texts.
        style: Content of the style sheet.
        captions: Captions of the tables and of the figures.
    """

    def __init__(self, text: str) -> None:
        """Parse a page."""
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text, self.style = "", ""
        self.captions: list[str] = []
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a tag."""
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._open = tag
        if tag in {"caption", "figcaption", "summary"}:
            self.captions.append("")

    def handle_data(self, data: str) -> None:
        """Collect a text."""
        if self._open == "style":
            self.style += data
        elif self._open in {"caption", "figcaption", "summary"}:
            self.captions[-1] += data
        self.text += data

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the method of the base class
        """Forget the tag."""
        self._open = ""

    def values(self, name: str) -> list[str]:
        """Return the values of an attribute."""
        return [value for _, attribute, value in self.attributes if attribute == name]


def repository_of(models: int = 1, versions: int = 2) -> VersionsReport:
    """Return a repository with hostile texts."""
    records = tuple(
        ModelRecord(
            X,
            Path(X),
            (
                *(
                    VersionRecord(X, n, Path(str(n)), n == versions, manifest_of(n), "", 100, "2026-01-02T03:04:05Z")
                    for n in range(versions, 0, -1)
                ),
                VersionRecord(X, 0, Path("0"), served=False, manifest=None, problem=X, size=1, created=""),
            ),
            served=(versions,),
            held=1,
            problem=X,
        )
        for _ in range(models)
    )  # fmt: skip
    return VersionsReport(Path(X), "built", records, (X,))


def pages() -> dict[str, Page]:
    """Return both kinds of report."""
    configs = {X: f'name: "{X}"  # {X}'}
    return {
        "build": Page(build_page(build_document(BUILD), RESULTS)),
        "repository": Page(repository_page(repository_of(), configs, RESULTS)),
    }


@pytest.mark.parametrize("kind", ["build", "repository"])
def test_hostile_texts_are_escaped_and_nothing_is_requested(kind: str) -> None:
    """No script, no attribute that runs code or requests a file, and no link out of the page."""
    page = pages()[kind]
    forbidden = {"script", "img", "iframe", "object", "embed", "link", "base", "form", "video", "audio", "image", "use"}
    assert forbidden.isdisjoint(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name in {"src", "style", "srcset"}]
    assert page.values("href")
    assert all(href.startswith("#") for href in page.values("href"))
    assert "url(" not in page.style
    assert "@import" not in page.style
    assert page.text.count("<script src=https://evil.example/x.js></script>") > 10
    assert "{{7*7}}" in page.text
    assert not {"\x1b", "\u202e", "\udc80"} & set(page.text)
    assert r"\x1b\u202e\udc80" in page.text


@pytest.mark.parametrize("kind", ["build", "repository"])
def test_policy_forbids_everything_but_the_style_sheet(kind: str) -> None:
    """The digest in the policy is that of the style sheet in the page."""
    page = pages()[kind]
    (policy,) = (value for value in page.values("content") if value.startswith("default-src"))
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@pytest.mark.parametrize("kind", ["build", "repository"])
def test_headings_landmarks_and_targets(kind: str) -> None:
    """One h1, no level is left out, ids are unique, and every link and label has its target."""
    page = pages()[kind]
    levels = [int(tag[1]) for tag in page.tags if tag in {"h1", "h2", "h3", "h4"}]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= set(page.tags)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    targets = [href.removeprefix("#") for href in page.values("href")] + page.values("aria-labelledby")
    assert set(targets) <= set(ids)


def test_build_has_a_table_for_every_plot() -> None:
    """The captions of all tables and figures; the marks of a row are in the row of its value."""
    captions = " | ".join(pages()["build"].captions)
    for caption in (
        "Models",
        "Inputs and outputs, with the batch",
        "Largest absolute error of",
        "Errors of",
        "Differences of every case and output",
        "Export attempts",
        "Optimization passes, in order",
        "Nodes by operator, before and after each pass that was applied",
        "Checks on the server",
        "Median latency at batch 8, one request at a time",
        "Latency and throughput at batch 8",
        "Values: Latency and throughput at batch 8",
        "All measurements, with 95% intervals",
        "Peak resident memory",
        "Trials: higher throughput to the right",
        "Values: Trials: higher throughput to the right",
        "The chosen config and the baselines",
        "Fields of config.pbtxt",
        "Text of config.pbtxt",
        "Steps of at least 0.1 s",
        "Versions of the tools",
        "Everything that the build depends on",
    ):
        assert caption in captions, caption


def test_labels_that_would_overlap_are_left_out() -> None:
    """The first one stays; the table has every point."""
    ends = [(900.0, 10.0), (905.0, 10.1), (300.0, 10.0)]
    series = [
        Series(str(number), (Point(0.0, 1.0, "", ("1",)), Point(x, y, "16", ("16",))), number)
        for number, (x, y) in enumerate(ends, 1)
    ]
    chart = plane(("c", "x", "y"), ("Variant", "Requests"), series, frozenset({1}))
    assert [[point.label for point in each.points] for each in chart.series] == [["", "16"], ["", ""], ["", "16"]]
    assert [[point.cells for point in each.points] for each in chart.series] == [[("1",), ("16",)]] * 3


def test_settings_of_trials_are_text_that_wraps() -> None:
    """Only figures are aligned to the right and kept in one line."""
    page = build_page(build_document(BUILD), RESULTS)
    assert "<td>stopped, " in page
    assert '<td class="n">stopped' not in page
    assert '<td class="n">200</td>' in page


def test_equal_output_has_a_sentence_and_no_plot() -> None:
    """A plot of zeros shows nothing."""
    equal = ParityReport(
        (ParityCase("batch=1 seed=0", 0.0, 0.0, 1.0, True, "", {"batch": 1}, (OutputDifference("label", 0.0, 0.0),)),),  # noqa: FBT003
        outputs=(ErrorDistribution("label", 1e-3, 1e-5, 3, {}),),
    )
    text = build_page(build_document(replace(BUILD, models=(replace(MODEL, parity=equal),))), {})
    assert "label is equal in all cases." in text
    assert "Largest absolute error of label" not in text


def test_smoke_checks_have_their_state() -> None:
    """The state of a warning is not that of a check that passed."""
    warning = SmokeCheck("golden over HTTP", passed=True, detail="not tested", warning=True)
    smoke = SmokeReport(
        *("m", 3, "remote", "2.51.0", "ONNX Runtime 1.19.2"),
        (SmokeCheck("ready", passed=True), warning, SmokeCheck("loads", passed=False)),
    )
    text = build_page(build_document(replace(BUILD, models=(replace(MODEL, smoke=smoke),))), {})
    states = {"ready": "passed", "golden over HTTP": "warning", "loads": "failed"}
    for name, state in states.items():
        assert re.search(rf">{name}<.{{0,20}}>{state}<", text, re.DOTALL)


def test_repository_has_versions_and_lineage() -> None:
    """An ensemble names the version that it was built from, and versions what changed."""
    report = repository_of()
    first = report.models[0].versions[1].manifest
    assert first is not None
    ensemble = replace(manifest_of(7, **{"step:m": first.content_sha256, "step:n": "f" * 64}))
    record = VersionRecord("e", 1, Path("1"), served=True, manifest=ensemble, problem="", size=1, created="")
    model = ModelRecord("e", Path("e"), (record,), (1,), None, "")
    page = Page(repository_page(replace(report, models=(*report.models, model)), {}, {}))
    assert {"Versions, newest first", "What changed between versions"} <= {caption.strip() for caption in page.captions}
    assert "weights changed" in page.text
    assert "version 1" in page.text
    assert "ffffffffffff…, which the repository does not have" in page.text


def test_numbers_of_models_versions_and_texts_are_limited() -> None:
    """A hostile repository gives a page of limited size, which says what it leaves out."""
    report = repository_of(MAX_MODELS + 5, 1)
    assert "5 more models are not in this report." in Page(repository_page(report, {}, {})).text
    many = repository_of(1, MAX_VERSIONS + 40)
    assert f"The newest {MAX_VERSIONS} of {MAX_VERSIONS + 41} versions." in Page(repository_page(many, {}, {})).text
    long = replace(repository_of(), notes=("y" * 10**6,))
    assert len(repository_page(long, {X: "z" * 10**6}, {})) < 200_000


def test_equal_data_gives_equal_bytes() -> None:
    """Nothing depends on the time or on the order of a set."""
    assert build_page(build_document(BUILD), RESULTS) == build_page(build_document(BUILD), RESULTS)


def test_unchanged_model_has_what_its_build_measured(tmp_path: Path) -> None:
    """As long as it is the same version: an unchanged build measures nothing."""
    published = ModelReport(
        *("m", Status.PUBLISHED, 1, "ab", "dynamo"),
        parity_cases=2,
        passes=(PassOutcome("p", applied=True, nodes_before=2, nodes_after=1, operators_after={"Relu": 1}),),
        parity=ParityReport(
            (ParityCase("seed=0", 1e-6, 1e-6, 1.0, passed=True, outputs=(OutputDifference("y", 1e-6, 1e-6),)),),
            outputs=(ErrorDistribution("y", 1e-3, None, 0, {-12: 4}),),
        ),
    )
    write_build_results(BuildReport(Path("r"), (published,)), tmp_path)
    results = {"m": read_results(tmp_path, "m")}
    unchanged = replace(published, status=Status.UNCHANGED, parity=None, passes=())

    def captions_of(model: ModelReport) -> str:
        return " | ".join(Page(build_page(build_document(BuildReport(Path("r"), (model,))), results)).captions)

    assert "Largest absolute error of" in captions_of(unchanged)
    assert "Nodes by operator" in captions_of(unchanged)
    assert "Largest absolute error of" not in captions_of(replace(unchanged, sha256="other"))


def test_failed_parity_shows_where_it_failed() -> None:
    """The cases that differ, with reasons; a shape that differs has an infinite error, and no mark."""
    cases = (
        ParityCase("a=1", 1e-7, 1e-7, 1.0, passed=True, sizes={"a": 1}, outputs=(OutputDifference("y", 1e-7, 1e-7),)),
        ParityCase("a=2", 0.5, 0.5, 0.9, passed=False, reason="3 of 4 values differ", sizes={"a": 2},
                   outputs=(OutputDifference("y", 0.5, 0.5),)),
        ParityCase("a=3", math.inf, math.inf, 0.0, passed=False, reason="other shape", sizes={"a": 3},
                   outputs=(OutputDifference("y", math.inf, math.inf),)),
    )  # fmt: skip
    parity = ParityReport(cases, outputs=(ErrorDistribution("y", 1e-3, 1e-6, 0, {-14: 4, -1: 3}),))
    model = ModelReport("m", Status.FAILED, parity=parity, error=ErrorRecord("parity.drift", "differs", exit_code=4))
    text = build_page(build_document(BuildReport(Path("r"), (model,))), {})
    page = Page(text)
    assert "2 of 3 cases differ" in page.text
    assert "Cases that differ" in " | ".join(page.captions)
    assert "3 of 4 values differ" in page.text
    assert text.count('class="cross"') == 1
    assert text.count('<circle class="s1"') == 1


def test_file_with_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """The escape is also that of JSON, so the document can be read."""
    write_file(json.dumps({"file": "caf\udce9"}, ensure_ascii=False), tmp_path / "x.json", tmp_path)
    assert json.loads((tmp_path / "x.json").read_bytes()) == {"file": "caf\udce9"}


@pytest.mark.parametrize("link", ["build", "build/reports", "build/reports/build"])
def test_link_of_another_user_is_not_followed(tmp_path: Path, link: str) -> None:
    """In a directory in which any user can create files, a report would overwrite files elsewhere."""
    root, target = tmp_path / "shared", tmp_path / "target"
    (root / link).parent.mkdir(parents=True)
    target.mkdir()
    (root / link).symlink_to(target)
    directory = root / REPORTS
    report = BuildReport(Path("r"), (ModelReport("m", Status.VERIFIED),))
    write_build_results(report, directory)
    shutil.rmtree(target)
    target.mkdir()
    root.chmod(0o1777)
    for parent in (root / link, *(root / link).parents):
        if parent != root and parent.is_relative_to(root):
            os.chown(parent, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="belongs to another user"):
        write_build_results(report, directory)
    assert list(target.iterdir()) == []


def test_results_of_each_model_are_stored_and_read(tmp_path: Path) -> None:
    """A failed model has no result."""
    model = ModelBench("m", 3, rows=BENCH.models[0].rows)
    machine = Machine("CPU", 2, 2**30, 0.5, "Linux", {})
    write_bench_results(replace(BENCH, machine=machine, models=(model, ModelBench("empty", 0))), tmp_path)
    models = (ModelReport("m", Status.VERIFIED), ModelReport("failed", Status.FAILED))
    write_build_results(BuildReport(Path("r"), models), tmp_path)
    tuning: dict[str, Any] = {
        "model": "m",
        "version": 1,
        "objective": "latency",
        "batch": 1,
        "concurrency": 4,
        "new": 1,
    }
    result_file(tmp_path, "tune", "m").parent.mkdir(parents=True)
    result_file(tmp_path, "tune", "m").write_text(json.dumps(tuning))
    results = read_results(tmp_path, "m")
    assert results.build is not None
    assert results.bench is not None
    assert results.bench["models"][0]["rows"][0]["variant"] == "onnxruntime"
    assert results.tuning == TuningRecord("m", 1, "latency", 1, 4)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")) == [
        "bench/m/bench.json", "build/m/build.json", "tune/m/tune.json",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["<b>", "1e999", ""])
def test_text_in_place_of_a_number_is_not_a_result(tmp_path: Path, text: str) -> None:
    """JSON has no infinity, which is written as text; other text would end the report."""
    parity = ParityReport((ParityCase("seed=0", 1e-6, 1e-6, 1.0, passed=True),))
    published = ModelReport("m", Status.PUBLISHED, 1, "ab", "dynamo", parity_cases=1, parity=parity)
    write_build_results(BuildReport(Path("r"), (published,)), tmp_path)
    assert read_results(tmp_path, "m").build is not None
    file = result_file(tmp_path, "build", "m")
    document = json.loads(file.read_text())
    document["models"][0]["parity"]["sweep"][0]["max_abs_diff"] = text
    file.write_text(json.dumps(document))
    assert read_results(tmp_path, "m").build is None


def test_wrong_results_count_as_absent(tmp_path: Path) -> None:
    """Of another model, not JSON, of another type, a directory, or outside of the directory."""
    machine = Machine("CPU", 2, 2**30, 0.5, "Linux", {})
    other = ModelBench("other", 3, rows=BENCH.models[0].rows)
    write_bench_results(replace(BENCH, machine=machine, models=(other,)), tmp_path)
    (tmp_path / "bench" / "other").rename(tmp_path / "bench" / "m")
    result_file(tmp_path, "build", "m").mkdir(parents=True)
    result_file(tmp_path, "tune", "m").parent.mkdir(parents=True)
    result_file(tmp_path, "tune", "m").write_text("[" * 100_000)
    assert read_results(tmp_path, "m") == Results()
    assert read_results(tmp_path, "../m") == Results()
    assert read_results(tmp_path, "missing") == Results()


def test_results_of_another_directory_count_as_absent(tmp_path: Path) -> None:
    """A link could lead to the results of another user's models, which the report would publish."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    published = ModelReport("m", Status.PUBLISHED, 1, "ab", "dynamo", parity_cases=1)
    write_build_results(BuildReport(Path("r"), (published,)), own)
    assert read_results(own, "m").build is not None
    result_file(shared, "build", "m").parent.parent.mkdir(parents=True)
    result_file(shared, "build", "m").parent.symlink_to(result_file(own, "build", "m").parent)
    assert read_results(shared, "m") == Results()


def set_value(document: Any, path: str, value: object) -> None:
    """Set a value in a document; a part of the path that is a number is an index."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        document = document[part]
    document[last] = value


HOSTILE_NUMBERS = {
    "build": (
        "models/0/parity/outputs/0/exact", "models/0/operators/Relu", "models/0/size", "models/0/nodes/exported",
        "models/0/parity/sweep/0/sizes/batch", "models/0/parity/outputs/0/histogram/-12",
    ),
    "bench": ("machine/memory_bytes", "models/0/memory_bytes/grpc", "models/0/rows/0/batch"),
    "tune": ("trials/0/number", "passes/0/nodes", "chosen"),
}  # fmt: skip
HOSTILE_FIGURES = {
    "build": (
        "models/0/parity/outputs/0/atol", "models/0/parity/sweep/0/cosine", "models/0/seconds/export",
        "models/0/parity/max_abs_diff", "models/0/parity/sweep/0/max_abs_diff",
    ),
    "bench": ("machine/load", "models/0/rows/0/p50/value", "models/0/rows/1/throughput/value", "seconds"),
    "tune": ("trials/0/figures/throughput", "trials/0/figures/p99", "passes/0/max_abs_diff"),
}  # fmt: skip


@pytest.mark.parametrize("command", ["build", "bench", "tune"])
@pytest.mark.parametrize(
    ("number", "paths"),
    [
        *((text, HOSTILE_FIGURES) for text in ("NaN", "Infinity", "1.7e308", "1e299", "5e-324", "-1.5")),
        *((text, HOSTILE_NUMBERS) for text in (f"1{'0' * 400}", f"-1{'0' * 400}", f"1{'0' * 299}", "0", "-1")),
    ],
)
def test_any_number_gives_a_page(
    stored: Path, command: Literal["build", "bench", "tune"], number: str, paths: dict[str, tuple[str, ...]]
) -> None:
    """The results next to a repository may be those of somebody else."""
    file = result_file(stored, command, "m")
    document = json.loads(file.read_text())
    for path in paths[command]:
        set_value(document, path, "NUMBER")
    file.write_text(json.dumps(document).replace('"NUMBER"', number))
    assert "<h1>" in page_of(stored)


@pytest.mark.parametrize("key", ["", "x", "99999", "-99999", "1" * 5000, "\u0663", "1.5"])
def test_any_key_of_a_bin_gives_a_page(stored: Path, key: str) -> None:
    """As above."""
    file = result_file(stored, "build", "m")
    document = json.loads(file.read_text())
    document["models"][0]["parity"]["outputs"][0]["histogram"] = {key: 1}
    file.write_text(json.dumps(document))
    assert "<h1>" in page_of(stored)


def test_very_many_trials_and_measurements_are_limited(stored: Path) -> None:
    """The time to compare all trials with each other would grow with the square of their number."""
    file = result_file(stored, "tune", "m")
    document = json.loads(file.read_text())
    document["trials"] = [{**document["trials"][0], "number": number} for number in range(20_000)]
    document["pareto"] = [*range(20_000)]
    file.write_text(json.dumps(document))
    file = result_file(stored, "bench", "m")
    document = json.loads(file.read_text())
    rows = document["models"][0]["rows"]
    document["models"][0]["rows"] = [{**rows[0], "batch": number} for number in range(5_000)]
    file.write_text(json.dumps(document))
    assert len(page_of(stored)) < 4_000_000


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a directory with the results of a build, a benchmark and a search of the model `m`."""
    difference = OutputDifference("y", 2e-6, 1e-6)
    sweep = (ParityCase("batch=2", 2e-6, 1e-6, 1.0, passed=True, sizes={"batch": 2}, outputs=(difference,)),)
    parity = ParityReport(sweep, outputs=(ErrorDistribution("y", 1e-3, 1e-5, 3, {-12: 16}),))
    model = ModelReport(
        "m", Status.PUBLISHED, version=2, sha256=manifest_of(2).sha256, exporter="dynamo", parity_cases=1,
        parity=parity, operators={"Relu": 1, "Add": 2}, seconds={"export": 3.0, "smoke": 2.0},
    )  # fmt: skip
    write_build_results(BuildReport(Path("r"), (model,)), tmp_path)
    bench = ModelBench("m", 2, rows=BENCH.models[0].rows, baseline="onnxruntime", memory_bytes={"grpc": 2**20})
    write_bench_results(replace(BENCH, machine=Machine("c", 2, 2**30, 0.5, "s", {}), models=(bench,)), tmp_path)
    trials = (TrialRecord(1, "spec", {"a": 1}, "measured", TrialFigures(100.0, 5.0)),)
    passes = (PassRecord("p", None, 9, 1e-6),)
    tuning = TuningRecord("m", 2, "latency", 1, 4, passes=passes, trials=trials, pareto=(1,), chosen=1)
    file = result_file(tmp_path, "tune", "m")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(asdict(tuning)))
    assert None not in vars(read_results(tmp_path, "m")).values()
    return tmp_path


def page_of(stored: Path) -> str:
    """Return the report of a repository with one model and its stored results."""
    report = repository_of()
    model = replace(report.models[0], name="m")
    return repository_page(replace(report, models=(model,)), {}, {"m": read_results(stored, "m")})


def test_reasons_of_a_config() -> None:
    """A comment in the lines of a field, or directly before it; `input` and `output` share one."""
    text = (
        "# Generated by repogen. Edit the spec.\n"
        'name: "a#b"\nmax_batch_size: 8  # measured\n\n'
        "# Names from the graph.\ninput [\n  { dims: [ 1 ]  # from the spec\n  }\n]\n\n"
        "output [ { dims: [ 2 ] } ]\n\n# From the spec.\nversion_policy: { latest: { num_versions: 2 } }\n\nunknown: 1"
    )
    fields = {field.name: (field.value, field.reason) for field in config_fields(text)}
    assert fields["name"] == ('"a#b"', "The model's name in the spec")
    assert fields["max_batch_size"] == ("8", "Measured")
    assert fields["input"] == ("[ { dims: [ 1 ] } ]", "From the spec; Names from the graph")
    assert fields["output"][1] == fields["input"][1]
    assert fields["version_policy"] == ("{ latest: { num_versions: 2 } }", "From the spec")
    assert fields["unknown"] == ("1", "-")


@given(st.text(alphabet="ab_:#\"'{}[]<>\\\n 1é\x00", max_size=200))
def test_any_text_is_a_config(text: str) -> None:
    """It comes from a file that somebody else may have written."""
    assert len(config_fields(text)) <= 100
