"""Tests of the Markdown reports for GitHub and MLflow runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from repogen.artifacts.built_model import UNCHANGED, ExportAttempt, PassOutcome
from repogen.artifacts.deployment import DeployAction, DeployReport, ModelDeployment, ServerDeployment
from repogen.artifacts.difference import (
    Change,
    DiffReport,
    FileChange,
    Metric,
    OperatorCount,
    VersionRef,
    WeightsDiff,
)
from repogen.artifacts.promotion import GateResult, Outcome, PromotionReport, Verdict
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.serving import Latency, SmokeCheck, SmokeReport
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.errors import ErrorRecord, PublishError
from repogen.reporting.deploy_text import deploy_markdown
from repogen.reporting.diff_text import diff_markdown
from repogen.reporting.markdown import (
    error_markdown,
    fenced,
    inline,
    promotion_markdown,
    report_markdown,
    smoke_markdown,
)
from repogen.reporting.notes import model_notes
from repogen.reporting.registry_text import sync_markdown
from repogen.spec.problems import Problem, SpecProblemsError

GOLDEN = Path(__file__).parent / "golden"

SMOKE = SmokeReport(
    model="digits",
    version=3,
    server="embedded",
    server_version="2.51.0",
    runtime="ONNX Runtime 1.19.2",
    checks=(
        SmokeCheck("ready", passed=True),
        SmokeCheck("dynamic batching", passed=True, detail="not observed", warning=True),
    ),
    overrides=("instance_group[0].kind: KIND_GPU -> KIND_CPU",),
    latency=Latency(1.0, 2.0, 3.0, 30),
)
GOOD = ModelReport(
    "digits",
    Status.PUBLISHED,
    version=3,
    sha256="ab" * 32,
    size=2 * 2**20,
    exporter="torchscript",
    opset=20,
    ir_version=10,
    max_batch_size=0,
    parity_cases=5,
    parity_skipped=("batch=32 seed=4",),
    max_abs_diff=4.8e-6,
    nodes_exported=12,
    nodes_optimized=8,
    attempts=(ExportAttempt("dynamo", ok=False, reason="no translation", seconds=1.0),),
    passes=(
        PassOutcome("onnxsim", applied=False, nodes_before=8, nodes_after=8, reason=UNCHANGED),
        PassOutcome("other", applied=False, nodes_before=8, nodes_after=8, reason="parity"),
    ),
    batch_reason="rows mix",
    notes=("model.eval() was called",),
    smoke=SMOKE,
    seconds={"export": 1.25, "smoke": 2.0},
    peak_rss_bytes=5 * 2**30,
)
BAD = ModelReport(
    "bert", Status.FAILED, error=ErrorRecord("parity.drift", "off by 2\nin case 3", "lower it", "repogen.yaml:9:3", 4)
)
REPORT = BuildReport(Path("model_repository"), (GOOD, BAD))


def test_report_lists_failures_first() -> None:
    """The whole report, with failures before the table of models."""
    assert (GOLDEN / "report.md").read_text(encoding="utf-8") == report_markdown(REPORT)


def test_smoke_report_names_failed_checks() -> None:
    """The whole report, with the failed checks."""
    failed = replace(SMOKE, model="bert", checks=(SmokeCheck("golden batch=2", passed=False, detail="off by 0.3"),))
    assert (GOLDEN / "smoke.md").read_text(encoding="utf-8") == smoke_markdown([SMOKE, failed])
    unread = smoke_markdown([replace(failed, version=0)])
    assert "**bert** failed:" in unread
    assert "| bert | - |" in unread


def test_promotion_lists_failed_gates_first() -> None:
    """Values, limits and notes of each gate."""
    gates = (
        GateResult("smoke", "14/14 checks", "all", Verdict.PASSED),
        GateResult("latency.max_ratio", "1.250", "<= 1.1", Verdict.FAILED, "too slow", 1.25),
    )
    report = PromotionReport("a|b", "champion", None, 4, Outcome.REFUSED, gates, "Triton 2.51.0", indicative=True)
    assert promotion_markdown(report) == (
        "### repogen promote: champion of a&#124;b, no version → version 4: refused\n\n"
        "| gate | measured | limit | verdict |\n|---|---|---|---|\n"
        "| latency.max\\_ratio | 1.250 | &lt;= 1.1 | **failed** |\n| smoke | 14/14 checks | all | passed |\n\n"
        "- latency.max\\_ratio: too slow\n- measured on Triton 2.51.0; times are indicative only\n"
    )


def test_spec_problems_are_listed() -> None:
    """A command that fails before any model prints its problems as on a terminal."""
    error = SpecProblemsError(
        [Problem("a.yaml", 2, 3, "models.x", "unknown key"), Problem("a.yaml", 1, 1, "", "bad", "fix")]
    )
    assert error_markdown(error, "build") == (
        "### repogen build failed\n\n**Failed** (spec.problems):\n\n"
        "```text\na.yaml:1:1: bad (fix)\na.yaml:2:3 models.x: unknown key\n```\n"
    )


def test_error_of_the_build_is_a_failure_without_a_model() -> None:
    """An error outside the models is reported as a failure."""
    report = report_markdown(
        BuildReport(Path("r"), (GOOD,), PublishError("the run could not be ended", "again").record)
    )
    assert "**Failed** (publish):\n\n```text\nthe run could not be ended\n```\n\nWhat to do: again\n" in report


def test_hint_of_several_lines() -> None:
    """Its line breaks are kept."""
    report = report_markdown(BuildReport(Path("r"), (), PublishError("failed", "add these:\n  x: 1").record))
    assert "What to do:\n\n```text\nadd these:\n  x: 1\n```\n" in report


def test_notes_are_one_line_each() -> None:
    """Everything unusual is one line; a pass without effect is not unusual."""
    assert model_notes(GOOD) == [
        "model.eval() was called",
        "dynamo was tried first: no translation",
        "other was skipped: parity",
        "max_batch_size is 0: rows mix",
        "parity.budget_seconds was used up; skipped parity cases: batch=32 seed=4",
        "peak memory of the worker: 5.0 GiB",
        "smoke test ran with instance_group[0].kind: KIND_GPU -> KIND_CPU",
        "dynamic batching: not observed",
    ]


HOSTILE = (
    "a|b",
    "a\\|b",
    "a\n\n# b",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](y)",
    "`code`",
    "*a* _b_ ~~c~~",
    "</details>",
    "&lt;b&gt;",
    "\x1b[2Ja\x00",
    "]]>-->",
    "- a",
    "---",
    "1. a",
    "# a",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_untrusted_text_is_escaped(text: str) -> None:
    """Names and messages that look like Markdown or HTML are shown literally in their cell."""
    model = replace(GOOD, name=text, notes=(text,), error=ErrorRecord(text, text, text, ""), status=Status.FAILED)
    tokens = _block_types(report_markdown(BuildReport(Path("r"), (model,))))
    error = ErrorRecord("x", "x", "x\nx" if "\n" in text else "x")
    harmless = replace(model, name="x", notes=("x",), error=error)
    expected = _block_types(report_markdown(BuildReport(Path("r"), (harmless,))))
    assert expected == tokens


@given(st.text())
def test_any_text_is_one_table_cell(text: str) -> None:
    """Any text in a table is read back from the same cell."""
    parsed = _markdown().parse(f"|a|b|\n|---|---|\n|{inline(text)}|x|\n")
    cells = [token for token in parsed if token.type == "inline"]
    assert [cells[0].content, cells[1].content, cells[3].content] == ["a", "b", "x"]
    children = [child for child in cells[2].children or [] if child.content != "<!-- -->"]  # between @ and a name
    assert {"text", "text_special"} >= {child.type for child in children}
    expected = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
    assert expected == "".join(child.content for child in children)


def test_names_do_not_mention_users_of_github() -> None:
    """A comment would notify them; a model's URI with an alias stays as it is."""
    assert inline("@octocat, @team/ml, models:/m@champion") == "@<!-- -->octocat, @<!-- -->team/ml, models:/m@champion"


@given(st.text(alphabet="`~a\n\r\t "))
def test_any_text_is_one_code_block(text: str) -> None:
    """No text closes its fence."""
    parsed = _markdown().parse(fenced(text))
    assert [token.type for token in parsed] == ["fence"]


def test_summary_of_python_code() -> None:
    """Its digest is not that of a graph."""
    code = replace(GOOD, ir_version=0, opset=0)
    text = report_markdown(replace(REPORT, models=(code,)))
    assert f"- sha256 {code.sha256}, max" in text
    assert "model.onnx" not in text


def _block_types(markdown: str) -> list[str]:
    """Return the structure of a text without its contents."""
    types = []
    for token in _markdown().parse(markdown):
        types += (
            [token.type]
            if token.children is None
            else [child.type for child in token.children if child.type not in {"text", "text_special"}]
        )
    return types


def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def test_report_without_html_tags() -> None:
    """MLflow's page shows Markdown, and tags as text."""
    page = report_markdown(BuildReport(Path("repository"), (GOOD,)), collapse=False)
    assert "<" not in page
    assert f"#### {GOOD.name}\n\n- " in page


MARKUP = "a|b<img src=x>*c*"
DIFF = DiffReport(
    VersionRef(Path("models:/m/7"), MARKUP, 3),
    VersionRef(Path("preview"), MARKUP, 1),
    identical=False,
    signature=(f"input {MARKUP!r} is new",),
    weights=WeightsDiff(0, (MARKUP,), (), (), 0),
    facts=(Change("opset", "17", "20"),),
    nodes=(1, 2),
    operators=(OperatorCount(MARKUP, 0, 1),),
    metrics=(Metric("parity cases", 5, None),),
    sizes=(1, 2),
    files=(FileChange("model.onnx", 1, None),),
    config=("-a", f"+```{MARKUP}"),
    inputs=("weights",),
    notes=(),
)
SYNC = SyncReport(
    Path("r"), "champion", dry_run=False, versions=(SyncedVersion(MARKUP, SyncAction.FAILED, 1, MARKUP, BAD.error),)
)
DEPLOY = DeployReport(
    Path("r"),
    (ServerDeployment("a:8001", models=(ModelDeployment(MARKUP, DeployAction.FAILED, error=BAD.error),)),),
)


@pytest.mark.parametrize(
    ("text", "rows"), [(diff_markdown(DIFF), 4), (sync_markdown(SYNC), 1), (deploy_markdown(DEPLOY), 1)]
)
def test_names_are_rendered_as_text(text: str, rows: int) -> None:
    """A renderer finds a table with every row, and the names as text: no image, no emphasis, no extra column."""
    tokens = _markdown().parse(text)
    kinds = [token.type for token in tokens]
    assert tokens[0].type == "heading_open"
    assert kinds.count("tbody_open") == kinds.count("table_open")
    bodies = kinds.count("tr_open") - kinds.count("table_open")
    assert bodies == rows
    html = _markdown().render(text)
    assert "<img" not in html
    assert "<em>c</em>" not in html
    assert "a|b&lt;img src=x&gt;*c*" in html
