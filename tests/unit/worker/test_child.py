"""Errors of the worker: their locations and classes, and the diagnostics that are collected until then."""

from __future__ import annotations

import io
import math
import sys
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import (
    BuildDiagnostics,
    ExportAttempt,
    OutputDifference,
    ParityCase,
    ParityReport,
    PassOutcome,
)
from repogen.errors import ErrorRecord, ExitCode, ExportError, ParityError, RepogenError
from repogen.spec.models import ModelSpec
from repogen.validate.drift import DriftError
from repogen.validate.runtime import OTHER_EXPORTER
from repogen.worker.child import _missing_module, _relative, _sendable, _spec_key, _unexpected_error
from repogen.worker.interference import ProcessState
from repogen.worker.job import EVENT, Event, Job
from repogen.worker.progress import BuildLog
from repogen.worker.sequence import combined_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("{root}/nets/models.py:12", "nets/models.py:12"),
        ("/opt/env/lib/python3.11/site-packages/transformers/models/bert.py:3", "transformers/models/bert.py:3"),
        ("/home/somebody/elsewhere.py:9", "elsewhere.py:9"),
        ("models.py:4", "models.py:4"),
        ("models.digits.inputs", "models.digits.inputs"),
        ("", ""),
    ],
)
def test_location_does_not_contain_paths_of_this_machine(tmp_path: Path, where: str, expected: str) -> None:
    """It is relative to the spec or to site-packages, or a file name."""
    assert _relative(where.format(root=tmp_path), tmp_path) == expected


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("nets.py:build", "models.tiny.source.factory"),
        ("best.pt", "models.tiny.source.weights"),
        ("data.npz", "models.tiny.examples"),
        ("outputs", "models.tiny.outputs"),
        ("nets.py:3", ""),
        ("", ""),
    ],
)
def test_location_of_a_file_in_the_spec_is_its_key(tmp_path: Path, where: str, key: str) -> None:
    """The parent adds the line of the key."""
    source = {"factory": "nets.py:build", "weights": "weights/best.pt"}
    model = ModelSpec.model_validate({"source": source, "examples": "data.npz"})
    assert _spec_key(where, Job("tiny", model, tmp_path, "24.10", tmp_path, 1)) == key


def test_missing_requirement_is_a_spec_error() -> None:
    """Any other missing module is a bug."""
    assert _missing_module(ModuleNotFoundError("no", name="torch.onnx")).exit_code == ExitCode.SPEC
    assert _missing_module(ModuleNotFoundError("no", name="elsewhere")).exit_code == ExitCode.BUG


def test_unexpected_exception_is_a_bug_unless_memory_is_exhausted(tmp_path: Path) -> None:
    """Out of memory is an error of the model."""
    assert _unexpected_error(MemoryError(), tmp_path).exit_code == ExitCode.EXPORT
    error = _unexpected_error(ValueError("x\ny"), tmp_path)
    assert (error.message, error.exit_code) == ("unexpected ValueError: x", ExitCode.BUG)


def test_error_of_the_models_code_is_not_a_bug(tmp_path: Path) -> None:
    """Its stack has a line of the model's code, or it is an exception that repogen does not raise."""
    assert _unexpected_error(GeneratorExit(), tmp_path).exit_code == ExitCode.EXPORT
    (tmp_path / "models.py").write_text("def trace():\n    return 1 / 0\n")
    namespace: dict[str, Callable[[], None]] = {}
    exec(compile((tmp_path / "models.py").read_text(), tmp_path / "models.py", "exec"), namespace)  # noqa: S102
    with pytest.raises(ZeroDivisionError) as caught:
        namespace["trace"]()
    error = _unexpected_error(caught.value, tmp_path)
    assert (error.code, error.where) == ("source.user-code", "models.py:2")


def test_changes_of_the_process_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what can have caused the error."""
    state = ProcessState()
    assert state.changes(ValueError()) == []
    monkeypatch.setitem(sys.modules, "colorsys", None)
    assert state.changes(ValueError()) == []
    assert state.changes(ModuleNotFoundError(name="colorsys")) == ["set sys.modules['colorsys'] to None"]
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(io, "BytesIO", None)
    (tmp_path / "deleted").mkdir()
    monkeypatch.chdir(tmp_path / "deleted")
    (tmp_path / "deleted").rmdir()
    assert state.changes(ValueError()) == [
        "replaced io.BytesIO",
        "removed entries of sys.path",
        "removed the working directory",
    ]


def test_error_with_any_text_can_be_sent() -> None:
    """User code writes a part of it."""
    record = ErrorRecord("source.user-code", "\udcff" + "x" * 10**6, details="y" * 10**7 + "\udcff")
    sent = EVENT.validate_json(EVENT.dump_json(Event("error", error=_sendable(record)))).error
    assert sent is not None
    assert sent.message.startswith("\\udcffx")
    assert sent.details.endswith("y\\udcff")
    assert len(sent.message) + len(sent.details) < 2 * 10**6


def test_error_of_several_exporters_has_every_reason() -> None:
    """The error of the latest step decides the class; hint and location come from the first error that has one."""
    refused = ExportError("refused", "rewrite it", where="m.py:1", code="export.dynamo")
    failures: list[tuple[str, RepogenError]] = [
        ("dynamo", refused),
        ("torchscript", ParityError("drifts", code="parity.drift")),
    ]
    error = combined_error(failures)
    assert (error.code, error.exit_code, error.hint, error.where) == ("parity.drift", 4, "rewrite it", "m.py:1")
    assert error.message == "every exporter failed:\n  dynamo: refused\n  torchscript: drifts"
    assert combined_error(failures[:1]) is refused


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        (("", OTHER_EXPORTER), "if the differences are acceptable, set parity: {rtol: …, atol: …}"),
        (("narrow dims:", OTHER_EXPORTER), "narrow dims:"),
        ((f"choose a newer target.triton; or {OTHER_EXPORTER}",), "choose a newer target.triton"),
    ],
)
def test_hint_does_not_name_another_exporter_after_all(hints: tuple[str, ...], expected: str) -> None:
    """Every exporter has been tried, or `repogen diagnose` shows the result of the only one."""
    failures: list[tuple[str, RepogenError]] = [
        (str(number), ParityError("drifts", hint, code="parity.drift")) for number, hint in enumerate(hints)
    ]
    assert combined_error(failures, all_tried=True).hint == expected
    other = ExportError("invalid", OTHER_EXPORTER, code="validate.checker")
    assert combined_error([("dynamo", other), ("torchscript", other)]).hint == ""
    assert combined_error([("dynamo", other)]) is other
    assert combined_error([("onnx", other)], all_tried=True).hint == ""
    drift = ParityError("drifts", "look", code="parity.drift")
    assert combined_error([("onnx", drift)], all_tried=True) is drift


def test_parity_of_a_graph_that_differs_is_sent() -> None:
    """Infinite differences included, which JSON does not have as numbers."""
    output = OutputDifference("y", math.inf, math.inf)
    case = ParityCase(
        "batch=2", math.inf, math.inf, 0.0, passed=False, reason="shape", sizes={"batch": 2}, outputs=(output,)
    )
    error = DriftError("1 of 1 cases")
    error.parity = ParityReport((case,))
    log = BuildLog(lambda *_: None)
    log.add_failure(ExportError("another failure"))
    assert log.diagnostics.parity is None
    log.add_failure(error)
    event = EVENT.validate_json(EVENT.dump_json(Event("error", diagnostics=log.diagnostics, error=error.record)))
    assert event.diagnostics.parity == error.parity


def test_build_log_collects_diagnostics() -> None:
    """Each step is reported with the diagnostics until then; the times of a repeated step are added."""
    steps: list[tuple[str, BuildDiagnostics]] = []
    log = BuildLog(lambda step, diagnostics: steps.append((step, diagnostics)))
    attempt = ExportAttempt("dynamo", ok=False, reason="refused", seconds=1.0)
    skipped = PassOutcome("onnxsim", applied=False, nodes_before=3, nodes_after=3, reason="drift")
    with log.step("source"):
        pass
    log.add_notes(("eval() was forgotten",))
    with log.step("export"):
        pass
    log.add_attempt(attempt)
    log.set_passes((skipped,))
    with pytest.raises(ValueError, match="no"), log.step("export"):
        raise ValueError("no")
    assert [step for step, _ in steps] == ["source", "export", "export"]
    assert [diagnostics.notes for _, diagnostics in steps] == [(), ("eval() was forgotten",), ("eval() was forgotten",)]
    assert (steps[1][1].attempts, steps[2][1].attempts) == ((), (attempt,))
    assert (log.diagnostics.attempts, log.diagnostics.passes) == ((attempt,), (skipped,))
    assert list(log.diagnostics.seconds) == ["source", "export"]
    assert log.diagnostics.peak_rss_bytes > 2**20
