"""Output for GitHub Actions: annotations, the step summary, and step outputs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repogen.artifacts.bench import BenchReport, Machine, ModelBench
from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.artifacts.promotion import GateResult, Outcome, PromotionReport, Verdict
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.serving import SmokeCheck, SmokeReport
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.artifacts.tune import TuneReport
from repogen.errors import ErrorRecord, PublishError
from repogen.reporting.annotations import Annotation, build_annotations, error_annotations, smoke_annotations
from repogen.reporting.github import (
    SUMMARY_BYTES,
    Runner,
    output_lines,
    runner,
    write_bench,
    write_build,
    write_deploy,
    write_error,
    write_promotion,
    write_smoke,
    write_sync,
    write_tune,
)
from repogen.reporting.output import safe_text, write_json, write_text
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
    """A runner's workspace as working directory, with a spec in ``models/``; the runner's files are next to it."""
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
    """Return the spec, loaded by its path relative to the workspace."""
    del workspace
    return load_spec(Path("models/repogen.yaml"))


def outputs(file: Path) -> dict[str, str]:
    """Read a step's outputs like the runner."""
    values, lines = {}, file.read_text(encoding="utf-8").split("\n")
    while len(lines) > 1:
        name, _, delimiter = lines[0].partition("<<")
        end = lines.index(delimiter, 1)
        values[name] = "\n".join(lines[1:end])
        lines = lines[end + 1 :]
    return values


def test_nothing_is_written_outside_of_actions(
    spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On a developer's machine nothing is printed or written."""
    monkeypatch.delenv("GITHUB_ACTIONS")
    write_build(BuildReport(Path("r"), (BAD,)), spec, err=False)
    write_smoke(Path("r"), [WARNED], err=False)
    write_error(PublishError("x"), "build")
    assert safe_text("::error::x ##[group]") == "::error::x ##[group]"
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "summary.md").exists()


@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"])
def test_partial_environment_is_not_a_runner(variable: str) -> None:
    """An environment without all of the runner's variables is not a runner."""
    environment = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "/s", "GITHUB_OUTPUT": "/o"}
    assert runner(environment) is not None
    assert runner({name: value for name, value in environment.items() if name != variable}) is None


def test_build_annotations_summary_and_outputs(spec: Spec, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A build writes one annotation per failure and warning, the summary, and the step outputs."""
    write_build(BuildReport(tmp_path / "work" / "repo", (GOOD, BAD)), spec, err=False)
    assert capsys.readouterr().out.splitlines() == [
        "::warning file=models/repogen.yaml,line=2,col=3,title=good%3A batching::none",
        "::error file=models/models.py,line=1,title=bad%3A export.x::no%0Aexport%0Afix it",
    ]
    step_outputs = outputs(tmp_path / "output")
    assert json.loads(step_outputs["models"]) == [
        {"name": "good", "status": "published", "version": 2, "registry_version": 5, "sha256": "ab", "size": 7},
        {"name": "bad", "status": "failed", "version": None, "registry_version": None, "sha256": None, "size": None},
    ]
    assert (step_outputs["repository"], step_outputs["failed"]) == ("repo", "true")
    report = Path(step_outputs["report"]).read_text(encoding="utf-8")
    assert report.startswith("### repogen build: 1 published, 1 failed\n")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == report


def test_ensembles_are_before_their_steps(workspace: Path) -> None:
    """An ensemble moves the alias of its steps; a step is not promoted while the alias has another set."""
    text = "models:\n" + "".join(
        f"  {name}:\n    source: {{factory: models.py:build}}\n    inputs: {{x: {{dtype: float32, shape: [4]}}}}\n"
        "    outputs: [y]\n"
        for name in "ab"
    )
    for name, step in (("inner", "a"), ("outer", "inner")):
        text += f"  {name}:\n    source:\n      kind: ensemble\n      steps:\n        - model: {step}\n"
        text += "          inputs: {x: x}\n          outputs: {y: y}\n"
        text += "    outputs: [y]\n"
    (workspace / "models" / "repogen.yaml").write_text(text, encoding="utf-8")
    spec = load_spec(Path("models/repogen.yaml"))
    models = tuple(replace(GOOD, name=name) for name in ("a", "inner", "b", "outer"))
    write_build(BuildReport(workspace / "r", models), spec, err=False)
    names = [model["name"] for model in json.loads(outputs(workspace.parent / "output")["models"])]
    assert names == ["outer", "inner", "a", "b"]


def test_html_report_has_a_unique_name(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Artifacts of one run must not have the same name; the name of a job is hostile on other runners."""
    monkeypatch.setenv("GITHUB_JOB", "../a b")
    page = tmp_path / "page.html"
    page.write_text("<html>", encoding="utf-8")
    paths = set()
    for _ in range(2):
        write_build(BuildReport(tmp_path / "work" / "repo", (GOOD,), page=page), spec, err=False)
        paths.add(Path(outputs(tmp_path / "output")["html"]))
    assert len(paths) == 2
    assert {path.parent for path in paths} == {tmp_path}
    assert all(path.name.startswith("repogen----a-b-") and path.read_text() == "<html>" for path in paths)
    page.unlink()
    write_build(BuildReport(tmp_path / "work" / "repo", (GOOD,), page=page), spec, err=False)


def test_smoke_annotations_and_outputs(workspace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Failed checks are error annotations, and the outputs report the failure."""
    failed = replace(WARNED, checks=(SmokeCheck("ready", passed=False, detail="no"),))
    write_smoke(workspace / "repo", [failed], err=True)
    assert capsys.readouterr() == ("", "::error title=good%3A ready::no\n")
    step_outputs = outputs(tmp_path / "output")
    assert (step_outputs["repository"], step_outputs["failed"]) == ("repo", "true")
    assert json.loads(step_outputs["models"]) == [{"name": "good", "status": "failed", "version": 2}]


def test_failed_gates_are_annotated(spec: Spec, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each failed gate is an error on the model's line; a second promotion of the step appends its report."""
    gate = GateResult("size.max_mb", "3 MB", "<= 2", Verdict.FAILED, "larger by half")
    promotion = PromotionReport("bad", "champion", 1, 2, Outcome.REFUSED, (gate,))
    write_promotion(promotion, spec, err=False)
    write_promotion(replace(promotion, outcome=Outcome.PROMOTED, gates=()), None, err=False)
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


def test_spec_problems_are_annotated(workspace: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each problem is annotated on its line with a hint; the outputs stay valid JSON."""
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
    step_outputs = outputs(tmp_path / "output")
    assert (step_outputs["repository"], step_outputs["models"], step_outputs["failed"]) == ("", "[]", "true")


def test_position_outside_of_the_workspace(spec: Spec) -> None:
    """An error outside the workspace falls back to the model's line in the spec."""
    error = ErrorRecord("export.x", "no", "", "torch/nn/modules/linear.py:3", 3)
    (annotation,) = build_annotations(BuildReport(Path("r"), (replace(BAD, error=error),)), spec)
    assert annotation.command(Path()) == "::error file=models/repogen.yaml,line=6,col=3,title=bad%3A export.x::no"
    (elsewhere,) = error_annotations(PublishError("no", where="../summary.md:1"))
    assert elsewhere.command(Path()) == "::error title=publish::no"


def test_position_in_a_loop_of_links(tmp_path: Path) -> None:
    """A link of a foreign repository that leads to itself has no position."""
    (tmp_path / "config.pbtxt").symlink_to("config.pbtxt")
    annotation = Annotation("error", "RG001", "m", (f"{tmp_path / 'config.pbtxt'}:1",))
    assert annotation.command(tmp_path) == "::error title=RG001::m"


def test_error_of_the_build_is_annotated(spec: Spec) -> None:
    """An error outside the models is annotated."""
    report = BuildReport(Path("r"), (), PublishError("the run could not be ended").record)
    assert [note.message for note in build_annotations(report, spec)] == ["the run could not be ended"]


@given(st.text(), st.text())
def test_annotation_round_trip(title: str, message: str) -> None:
    """Any title and message is one line that the runner decodes to the same text."""
    line = Annotation("error", title, message).command(Path("/nowhere"))
    assert len(line.splitlines()) == 1
    head, _, text = line.removeprefix("::error ").partition("::")
    assert head.count(",") == 0
    assert head.count(":") == 0
    expected = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in message)
    assert text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%") == expected


@given(st.text(alphabet="a\n<=end_"))
def test_output_round_trip(value: str) -> None:
    """A multi-line output is read back unchanged."""
    lines = output_lines("name", value).split("\n")
    delimiter = lines[0].removeprefix("name<<")
    assert lines.index(delimiter) == len(lines) - 2
    assert "\n".join(lines[1:-2]) == value


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("::set-output name=models::[]", "\\x3a:set-output name=models::[]"),
        ("a\n \t::error::x", "a\n \t\\x3a:error::x"),
        ("a ::error::x", "a ::error::x"),
        ("a ##[error]x ###[group]", "a #\\x23[error]x ##\\x23[group]"),
        ("\r::error::x\N{LINE SEPARATOR}::error::y", "\\r::error::x\\u2028::error::y"),
    ],
)
def test_messages_are_not_commands(workspace: Path, text: str, printed: str) -> None:
    """The runner reads `::` at the start of a line, and `##[` anywhere in it."""
    del workspace
    assert safe_text(text) == printed


@given(st.text(alphabet='#[]:\n\r\\"ae\x1b'))
def test_no_output_contains_a_command(text: str) -> None:
    """Text has no line that the runner obeys, and JSON is still the same value."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_ACTIONS", "true")
        stream = StringIO()
        patch.setattr(sys, "stdout", stream)
        write_json({text: [text]})
        document = stream.getvalue()
        write_text(text)
        lines = stream.getvalue().splitlines()
    assert not [line for line in lines if "##[" in line or line.lstrip().startswith("::")]
    assert "\x1b" not in stream.getvalue()
    assert json.loads(document) == {text: [text]}
    command = Annotation("error", text, text).command(Path())
    assert "##[" not in command
    assert len(command.splitlines()) == 1


def test_long_summary_is_truncated(tmp_path: Path) -> None:
    """The summary of a step is truncated at the end of a line, with a note, at GitHub's limit."""
    (tmp_path / "summary").write_text("x" * (SUMMARY_BYTES - 1000), encoding="utf-8")
    step_runner = Runner(tmp_path / "summary", tmp_path / "output", tmp_path, tmp_path)
    step_runner.write([], "ä line\n" * 1000, {}, err=False)
    written = (tmp_path / "summary").read_bytes()
    assert SUMMARY_BYTES - 100 < len(written) <= SUMMARY_BYTES
    assert written.decode().endswith("ä line\n\nTruncated: GitHub shows at most 1 MiB. The report file is complete.\n")


def test_runner_without_files_keeps_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is the build's own if the runner's files cannot be written."""
    Runner(tmp_path / "no" / "summary", tmp_path / "no" / "output", tmp_path, tmp_path).write([], "x", {}, err=False)
    assert "cannot write the files" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["summary", "output"])
def test_runner_files_behind_a_link_of_another_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The link could lead to a private file of this user, to which text of a foreign repository would be appended."""
    private = tmp_path / "private"
    private.write_text("keep", encoding="utf-8")
    (tmp_path / name).symlink_to(private)
    os.chown(tmp_path / name, 65534, 65534, follow_symlinks=False)
    Runner(tmp_path / "summary", tmp_path / "output", tmp_path, tmp_path).write([], "x", {"a": "b"}, err=False)
    assert private.read_text(encoding="utf-8") == "keep"
    assert "is a symlink of another user" in capsys.readouterr().err


def test_runner_files_behind_an_own_link(tmp_path: Path) -> None:
    """As on a runner whose temporary directory is a link; or on a developer's machine, with /dev/stdout."""
    (tmp_path / "file").write_text("keep\n", encoding="utf-8")
    (tmp_path / "summary").symlink_to("file")
    Runner(tmp_path / "summary", Path("/dev/null"), tmp_path, tmp_path).write([], "x", {"a": "b"}, err=False)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "keep\nx"


def test_smoke_annotations_without_position() -> None:
    """A repository on disk has no line to annotate."""
    assert [note.command(Path()) for note in smoke_annotations([WARNED])] == ["::warning title=good%3A batching::none"]


def test_deploy_is_written(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each failure is annotated; the summary has the failures and a row per server and model."""
    error = ErrorRecord("smoke.failed", "m <b> failed", "look", "", 6)
    model = ModelDeployment("m", DeployAction.RESTORED, expected=(3,), before=(2, 1), serving=(2, 1), error=error)
    server = ServerDeployment("a:8001", models=(model,), note="not ready")
    write_deploy(DeployReport(workspace / "r", (server,)), err=False)
    assert capsys.readouterr().out == "::error title=smoke.failed::m <b> failed%0Alook\n"
    assert outputs(workspace.parent / "output")["failed"] == "true"
    summary = (workspace.parent / "summary.md").read_text(encoding="utf-8")
    assert summary == (
        "### repogen deploy: r: failed; deployed to 0 of 1 server\n\n**Failed** (smoke.failed):\n\n"
        "```text\nm <b> failed\n```\n\nWhat to do: look\n\n"
        "| server | model | action | before | serves | repository | smoke |\n|---|---|---|---|---|---|---|\n"
        "| a:8001 | m | restored | 2, 1 | 2, 1 | 3 | - |\n\n- a:8001: not ready\n"
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_sync_is_written(workspace: Path, *, dry_run: bool) -> None:
    """The output states whether a version was changed, or would be."""
    version = SyncedVersion("m", SyncAction.PUBLISHED, 12, "instead of 3")
    write_sync(SyncReport(workspace / "r", "champion", dry_run, (version,)), err=False)
    values = outputs(workspace.parent / "output")
    assert (values["repository"], values["changed"], values["failed"]) == ("r", "true", "false")
    summary = (workspace.parent / "summary.md").read_text(encoding="utf-8")
    outcome = "nothing was done (--dry-run)" if dry_run else "updated to champion"
    assert summary == (
        f"### repogen sync: r: {outcome}\n\n| model | action | version | alias |\n|---|---|---|---|\n"
        f"| m | {'would be ' if dry_run else ''}published | 12 | champion |\n\n- m: instead of 3\n"
    )


@pytest.mark.parametrize("command", ["smoke", "sync", "build", "error"])
def test_names_that_are_not_utf8(spec: Spec, workspace: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """An output has the bytes of the path, and the summary has a replacement character."""
    directory = workspace / os.fsdecode(b"caf\xe9")
    directory.mkdir()
    monkeypatch.setenv("RUNNER_TEMP", str(directory))
    name, error = os.fsdecode(b"m\xff"), PublishError(f"{directory} is full").record
    if command == "smoke":
        write_smoke(directory, [replace(WARNED, model=name)], err=False)
    elif command == "sync":
        version = SyncedVersion(name, SyncAction.FAILED, 1, name, error)
        write_sync(SyncReport(directory, name, dry_run=False, versions=(version,)), err=False)
    elif command == "build":
        write_build(BuildReport(directory, (GOOD,), error), spec, err=False)
    else:
        write_error(PublishError(f"{directory} is full"), "build")
    written = (workspace.parent / "output").read_bytes()
    assert (b"\ncaf\xe9\n" in written) == (command != "error")
    assert b"/caf\xe9/repogen-" in written
    assert "\N{REPLACEMENT CHARACTER}" in (workspace.parent / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["bench", "tune"])
def test_errors_of_measurements_are_annotated(
    workspace: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """As those of all other commands are."""
    error = ErrorRecord("x.y", "m failed", "look", "", 6)
    machine = Machine("CPU", 2, 2**30, 0.5, "Linux 6", {})
    if command == "bench":
        write_bench(BenchReport(workspace / "r", machine, 1, 0.5, (ModelBench("m", 1, error=error),)), err=False)
    else:
        tuned = TuneReport("m", 1, workspace / "r", "Triton", machine, "latency", (), 1, 1, space={}, error=error)
        write_tune(tuned, err=False)
    assert capsys.readouterr().out == "::error title=x.y::m failed%0Alook\n"
