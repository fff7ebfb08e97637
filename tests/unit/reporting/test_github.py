"""Output for GitHub Actions: annotations, the step summary, and step outputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.promotion import GateResult, Outcome, PromotionReport, Verdict
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.errors import ErrorRecord, PublishError
from repogen.reporting.annotations import Annotation, build_annotations, error_annotations, smoke_annotations
from repogen.reporting.github import (
    SUMMARY_BYTES,
    Runner,
    output_lines,
    runner,
    without_commands,
    write_build,
    write_error,
    write_promotion,
    write_smoke,
)
from repogen.spec.load import load_spec
from repogen.spec.problems import Problem, SpecProblemsError

if TYPE_CHECKING:
    from repogen.spec.models import Spec

SPEC = """\
models:
  good:
    source: {factory: models.py:build}
    inputs: {x: {dtype: float32, shape: [4]}}
    outputs: [y]
  bad:
    source: {factory: models.py:build}
    inputs: {x: {dtype: float32, shape: [4]}}
    outputs: [y]
"""
WARNED = SmokeReport(
    "good", 2, "embedded", "2.51", "ORT", (SmokeCheck("batching", passed=True, detail="none", warning=True),)
)
GOOD = ModelReport("good", Status.PUBLISHED, version=2, sha256="ab", size=7, registry_version=5, smoke=WARNED)
BAD = ModelReport("bad", Status.FAILED, error=ErrorRecord("export.x", "no\nexport", "fix it", "models.py:1", 3))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runner's workspace, which is the working directory, with a spec in ``models/``; its files beside it."""
    project = tmp_path / "work" / "models"
    project.mkdir(parents=True)
    (project / "repogen.yaml").write_text(SPEC, encoding="utf-8")
    (project / "models.py").write_text("build = None\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name, path in (
        ("STEP_SUMMARY", "summary.md"),
        ("OUTPUT", "output"),
        ("WORKSPACE", "work"),
    ):
        monkeypatch.setenv(f"GITHUB_{name}", str(tmp_path / path))
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
    return tmp_path / "work"


@pytest.fixture
def spec(workspace: Path) -> Spec:
    """The spec as a user names it who stands in the workspace."""
    del workspace
    return load_spec(Path("models/repogen.yaml"))


def outputs(file: Path) -> dict[str, str]:
    """Read a step's outputs as the runner does."""
    found, lines = {}, file.read_text(encoding="utf-8").split("\n")
    while len(lines) > 1:
        name, _, delimiter = lines[0].partition("<<")
        end = lines.index(delimiter, 1)
        found[name] = "\n".join(lines[1:end])
        lines = lines[end + 1 :]
    return found


def test_nothing_is_told_outside_of_actions(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On a developer's machine nothing is printed and nothing written."""
    monkeypatch.delenv("GITHUB_ACTIONS")
    write_build(BuildReport(Path("r"), (BAD,)), spec, err=False)
    write_smoke(Path("r"), [WARNED], err=False)
    write_error(PublishError("x"), "build")
    assert without_commands("::error::x") == "::error::x"
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "summary.md").exists()


@pytest.mark.parametrize("missing", ["GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"])
def test_a_runner_has_all_of_its_files(missing: str) -> None:
    """Half an environment is none."""
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "/s", "GITHUB_OUTPUT": "/o"}
    assert runner(environment) is not None
    assert runner({name: value for name, value in environment.items() if name != missing}) is None


def test_a_build_is_told_in_annotations_summary_and_outputs(
    spec: Spec, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Writes one annotation per failure and warning, the summary, and the step outputs."""
    write_build(BuildReport(tmp_path / "work" / "repo", (GOOD, BAD)), spec, err=False)
    assert capsys.readouterr().out.splitlines() == [
        "::warning file=models/repogen.yaml,line=2,col=3,title=good%3A batching::none",
        "::error file=models/models.py,line=1,title=bad%3A export.x::no%0Aexport%0Afix it",
    ]
    found = outputs(tmp_path / "output")
    assert json.loads(found["models"]) == [
        {"name": "good", "status": "published", "version": 2, "registry_version": 5, "sha256": "ab", "size": 7},
        {"name": "bad", "status": "failed", "version": None, "registry_version": None, "sha256": None, "size": None},
    ]
    assert (found["repository"], found["failed"]) == ("repo", "true")
    report = Path(found["report"]).read_text(encoding="utf-8")
    assert report.startswith("### repogen build: 1 published, 1 failed\n")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == report


def test_a_smoke_test_is_told(workspace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Checks that failed are errors; the outputs say so."""
    failed = replace(WARNED, checks=(SmokeCheck("ready", passed=False, detail="no"),))
    write_smoke(workspace / "repo", [failed], err=True)
    assert capsys.readouterr() == ("", "::error title=good%3A ready::no\n")
    found = outputs(tmp_path / "output")
    assert (found["repository"], found["failed"]) == ("repo", "true")
    assert json.loads(found["models"]) == [{"name": "good", "status": "failed", "version": 2}]


def test_a_refused_promotion_is_told(spec: Spec, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each gate that failed is an error on the model's line; a second promotion of the step adds its own report."""
    gate = GateResult("size.max_mb", "3 MB", "<= 2", Verdict.FAILED, "larger by half")
    refused = PromotionReport("bad", "champion", 1, 2, Outcome.REFUSED, (gate,))
    write_promotion(refused, spec, err=False)
    write_promotion(replace(refused, outcome=Outcome.PROMOTED, gates=()), None, err=False)
    assert capsys.readouterr().out == (
        "::error file=models/repogen.yaml,line=6,col=3,title=bad%3A size.max_mb"
        "::measured 3 MB, limit <= 2%0Alarger by half\n"
    )
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert [line for line in summary.splitlines() if line.startswith("###")] == [
        "### repogen promote: champion of bad, version 1 → version 2: refused",
        "### repogen promote: champion of bad, version 1 → version 2: promoted",
    ]
    assert outputs(tmp_path / "output")["failed"] == "false"


def test_all_problems_of_a_spec_are_annotated(
    workspace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each on its own line, with what to do; a next job finds outputs that it can parse."""
    del workspace
    problems = [
        Problem("models/repogen.yaml", 3, 5, "a.b", "50% wrong", "x, y"),
        Problem("models/repogen.yaml", 4, 1, "", "bad"),
    ]
    write_error(SpecProblemsError(problems), "build")
    assert capsys.readouterr().err.splitlines() == [
        "::error file=models/repogen.yaml,line=3,col=5,title=spec.problems::a.b: 50%25 wrong%0Ax, y",
        "::error file=models/repogen.yaml,line=4,col=1,title=spec.problems::bad",
    ]
    found = outputs(tmp_path / "output")
    assert (found["repository"], found["models"], found["failed"]) == ("", "[]", "true")


def test_a_place_outside_of_the_workspace_is_not_named(spec: Spec) -> None:
    """GitHub could not show it: a model's error falls back to the model's line in the spec."""
    error = ErrorRecord("export.x", "no", "", "torch/nn/modules/linear.py:3", 3)
    (found,) = build_annotations(BuildReport(Path("r"), (replace(BAD, error=error),)), spec)
    assert found.command(Path()) == "::error file=models/repogen.yaml,line=6,col=3,title=bad%3A export.x::no"
    (beside,) = error_annotations(PublishError("no", where="../summary.md:1"))
    assert beside.command(Path()) == "::error title=publish::no"


def test_an_error_of_the_build_itself_is_annotated(spec: Spec) -> None:
    """What went wrong beside the models."""
    report = BuildReport(Path("r"), (), PublishError("the run could not be ended").record)
    assert [note.message for note in build_annotations(report, spec)] == ["the run could not be ended"]


@given(st.text(), st.text())
def test_no_text_ends_its_annotation(title: str, message: str) -> None:
    """One line, two properties' ends: what the runner reads back is what was said."""
    line = Annotation("error", title, message).command(Path("/nowhere"))
    assert len(line.splitlines()) == 1
    head, _, told = line.removeprefix("::error ").partition("::")
    assert head.count(",") == 0
    assert head.count(":") == 0
    shown = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in message)
    assert told.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%") == shown


@given(st.text(alphabet="a\n<=end_"))
def test_no_text_ends_its_output(value: str) -> None:
    """A value of many lines is read back as it is."""
    lines = output_lines("name", value).split("\n")
    delimiter = lines[0].removeprefix("name<<")
    assert lines.index(delimiter) == len(lines) - 2
    assert "\n".join(lines[1:-2]) == value


def test_no_message_is_a_command(workspace: Path) -> None:
    """While a report is printed, the runner obeys nothing but a word that cannot be guessed."""
    del workspace
    first, text, last = without_commands("::set-output name=models::[]").split("\n")
    assert text == "::set-output name=models::[]"
    assert first.removeprefix("::stop-commands::") == last.strip(":")
    assert len(last) == 36


def test_a_summary_is_cut_where_github_would_drop_it(tmp_path: Path) -> None:
    """What an earlier part of the step wrote counts; the cut is at the end of a line, and said."""
    (tmp_path / "summary").write_text("x" * (SUMMARY_BYTES - 1000), encoding="utf-8")
    told = Runner(tmp_path / "summary", tmp_path / "output", tmp_path, tmp_path)
    told.write([], "ä line\n" * 1000, {}, err=False)
    written = (tmp_path / "summary").read_bytes()
    assert SUMMARY_BYTES - 100 < len(written) <= SUMMARY_BYTES
    assert written.decode().endswith("ä line\n\nTruncated: GitHub shows at most 1 MiB. The report file is complete.\n")


def test_a_runner_without_files_costs_no_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The build's own exit code stands."""
    Runner(tmp_path / "no" / "summary", tmp_path / "no" / "output", tmp_path, tmp_path).write([], "x", {}, err=False)
    assert "cannot write the files" in capsys.readouterr().err


def test_smoke_annotations_need_no_place() -> None:
    """A repository on disk has no line to point to."""
    assert [note.command(Path()) for note in smoke_annotations([WARNED])] == ["::warning title=good%3A batching::none"]
