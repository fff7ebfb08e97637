"""The text that commands print at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from repogen.artifacts.built_model import UNCHANGED, ExportAttempt, PassOutcome
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.artifacts.serving import UNKNOWN_RUNTIME, Endpoint, Latency, SmokeCheck, SmokeReport
from repogen.errors import ErrorRecord
from repogen.reporting.progress import PlainProgress
from repogen.reporting.text import build_text, error_text, model_error_text, serve_text, smoke_text
from repogen.serving.served_models import ServedModel

SMOKE = SmokeReport(
    model="digits",
    version=3,
    server="embedded",
    server_version="2.51.0",
    runtime="ONNX Runtime 1.19.2",
    checks=(
        SmokeCheck("ready", passed=True),
        SmokeCheck("dynamic batching", passed=True, detail="not observed", warning=True),
        SmokeCheck("golden batch=2", passed=False, detail="off by 0.3"),
    ),
    overrides=("instance_group[0].kind: KIND_GPU -> KIND_CPU",),
    latency=Latency(1.0, 2.0, 3.0, 30),
)
GOOD = ModelReport(
    "digits",
    Status.PUBLISHED,
    version=3,
    exporter="torchscript",
    opset=20,
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
)
BAD = ModelReport(
    "bert", Status.FAILED, error=ErrorRecord("parity.drift", "off by 2", "try", "repogen.yaml:9:3", 4, "a traceback")
)


def test_table_notes_and_errors() -> None:
    """The table with every model comes first, then notes, then failures."""
    text = build_text(BuildReport(Path("somewhere"), (GOOD, BAD)), debug=False)
    rows = text.splitlines()
    assert rows[2].split() == [
        *("digits", "published", "3", "0", "torchscript", "20", "12", "->", "8"),
        *("4.8e-06", "in", "5", "2/3,", "p50", "1.0", "ms", "0.0"),
    ]
    assert rows[3].split() == ["bert", "failed", "-", "-", "-", "-", "-", "-", "-", "0.0"]
    assert rows[-3:] == [
        "bert: error: repogen.yaml:9:3: off by 2",
        "  hint: try",
        "  more: repogen explain parity.drift",
    ]


def test_notes_about_the_build_come_first() -> None:
    """They have no model's name."""
    text = build_text(BuildReport(Path("somewhere"), (GOOD,), notes=("the spec has no target",)), debug=False)
    assert "notes:\n  the spec has no target\n  digits: " in text


def test_details_need_debug() -> None:
    """A traceback is printed only with --debug."""
    assert BAD.error is not None
    assert "a traceback" not in error_text(BAD.error, debug=False)
    assert error_text(BAD.error, debug=True).endswith("a traceback")


@pytest.mark.parametrize("message", ["rec: no batch size", "no batch size"])
def test_name_of_a_model_is_not_repeated(message: str) -> None:
    """The messages of some errors begin with it."""
    text = model_error_text("rec", ErrorRecord("x.y", message, where="repogen.yaml:9:3"), debug=False)
    assert text.splitlines()[0] == "rec: error: repogen.yaml:9:3: no batch size"


def test_lines_of_a_hint_are_indented() -> None:
    """A hint may be a list of commands."""
    text = error_text(ErrorRecord("x.y", "wrong", hint="usage:\n--gate GATE"), debug=False)
    assert text.splitlines()[1:3] == ["  hint: usage:", "    --gate GATE"]


def test_runtime_of_a_remote_server_is_not_printed() -> None:
    """It is not known."""
    first = smoke_text([replace(SMOKE, runtime=UNKNOWN_RUNTIME)]).splitlines()[0]
    assert first.endswith(f"on Triton {SMOKE.server_version} ({SMOKE.server})")


def test_smoke_of_a_model_that_cannot_be_read() -> None:
    """No version is known."""
    text = smoke_text([replace(SMOKE, version=0)])
    assert text.startswith("digits: FAILED on Triton")
    assert text.splitlines()[-1].split()[:3] == ["digits", "-", "FAILED"]


def test_smoke_table() -> None:
    """Each check has a verdict, and the table counts them."""
    rows = smoke_text([SMOKE]).splitlines()
    assert rows[0] == "digits version 3: FAILED on Triton 2.51.0 (embedded), ONNX Runtime 1.19.2"
    assert rows[1:4] == ["  ok   ready", "  warn dynamic batching: not observed", "  FAIL golden batch=2: off by 0.3"]
    cells = ["digits", "3", "FAILED", "2/3, 1 with a warning", "1.0 / 2.0 ms", "Triton 2.51.0 (embedded)"]
    assert rows[-1].split() == " ".join(cells).split()


def test_server_of_the_smoke_tests() -> None:
    """Its release may differ from the target's."""
    models = tuple(ModelReport(name, Status.PUBLISHED, smoke=SMOKE) for name in "ab")
    text = build_text(BuildReport(Path("r"), models), debug=False)
    assert text.count("tested on: Triton 2.51.0 (embedded), ONNX Runtime 1.19.2") == 1


def test_plain_progress_prints_one_line_per_event(capsys: pytest.CaptureFixture[str]) -> None:
    """CI logs get each step once, and a download in tenths."""
    progress = PlainProgress()
    for _ in range(2):
        progress.step("digits", "export")
    progress.step("", "done")
    progress.note("digits", "hm")
    for size in (0, 1, 2**20, 2 * 2**20):
        progress.download("triton", size, 2 * 2**20)
    lines = [line.split("] ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        *("digits: export to ONNX", "digits: note: hm"),
        *("triton: 0 of 2 MB", "triton: 1 of 2 MB", "triton: 2 of 2 MB"),
    ]


def test_progress_of_a_small_file_is_in_kib(capsys: pytest.CaptureFixture[str]) -> None:
    """It was `0 of 0 MB`."""
    PlainProgress().download("model.onnx", 100, 3_000)
    assert capsys.readouterr().err.endswith("model.onnx: 1 of 3 KiB\n")


def test_reasons_of_models_that_are_not_served() -> None:
    """They follow the table, and are complete."""
    reason = "Invalid argument: unable to load model 'a', configuration expects 2 inputs, model provides 1"
    endpoint = Endpoint("h:1", "h:2", "h:3", "embedded", "2.51.0", "", sees_files=True, has_gpu=False)
    text = serve_text(endpoint, [ServedModel("a", (), reason, "", ""), ServedModel("b", ("1",), "", "", "")])
    table, reasons = text.split("\n\n")[1:3]
    assert table.splitlines()[2:] == ["a      not served  -", "b      READY       1"]
    assert reasons.splitlines() == ["not served:", f"  a: {reason}"]
