"""How places and failures of the worker are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import BuildDiagnostics, ExportAttempt, PassOutcome
from repogen.errors import ExitCode, ExportError, ParityError, RepogenError
from repogen.spec.models import ModelSpec
from repogen.worker.child import _missing_module, _relative, _spec_key, _unexpected
from repogen.worker.job import Job
from repogen.worker.progress import BuildLog
from repogen.worker.sequence import combined_error

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("{root}/nets/models.py:12", "nets/models.py:12"),
        ("/opt/env/lib/python3.11/site-packages/transformers/models/bert.py:3", "transformers/models/bert.py:3"),
        ("/home/somebody/elsewhere.py:9", "elsewhere.py:9"),
        ("models.py:4", "models.py:4"),
        ("models.digits.inputs", "models.digits.inputs"),
        ("", ""),
    ],
)
def test_places_are_shown_without_this_machine(tmp_path: Path, where: str, shown: str) -> None:
    """Relative to the spec, to site-packages, or the file's name."""
    assert _relative(where.format(root=tmp_path), tmp_path) == shown


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("nets.py:build", "models.tiny.source.factory"),
        ("best.pt", "models.tiny.source.weights"),
        ("data.npz", "models.tiny.examples"),
        ("nets.py:3", ""),
        ("", ""),
    ],
)
def test_what_the_spec_names_is_placed_at_its_key(tmp_path: Path, where: str, key: str) -> None:
    """The parent knows the line of that key."""
    source = {"factory": "nets.py:build", "weights": "weights/best.pt"}
    model = ModelSpec.model_validate({"source": source, "examples": "data.npz"})
    assert _spec_key(where, Job("tiny", model, tmp_path, "24.10", tmp_path, 1)) == key


def test_a_missing_extra_names_its_installation() -> None:
    """Without torch there is no build; another module missing is a bug."""
    assert _missing_module(ModuleNotFoundError("no", name="torch.onnx")).exit_code == ExitCode.SPEC
    assert _missing_module(ModuleNotFoundError("no", name="elsewhere")).exit_code == ExitCode.BUG


def test_what_nobody_meant_is_a_bug_and_memory_is_not() -> None:
    """Out of memory is the model's; the rest is ours, with its traceback in the details."""
    assert _unexpected(MemoryError()).exit_code == ExitCode.EXPORT
    assert (_unexpected(ValueError("x\ny")).message, _unexpected(ValueError("x")).exit_code) == (
        "unexpected ValueError: x",
        ExitCode.BUG,
    )


def test_when_no_exporter_holds_every_reason_is_told() -> None:
    """The error that came furthest decides code and exit code; hint and place come from whoever has them."""
    refused = ExportError("refused", "rewrite it", where="m.py:1", code="export.dynamo")
    failures: list[tuple[str, RepogenError]] = [
        ("dynamo", refused),
        ("torchscript", ParityError("drifts", code="parity.drift")),
    ]
    error = combined_error(failures)
    assert (error.code, error.exit_code, error.hint, error.where) == ("parity.drift", 4, "rewrite it", "m.py:1")
    assert error.message == "every exporter failed:\n  dynamo: refused\n  torchscript: drifts"
    assert combined_error(failures[:1]) is refused


def test_the_ledger_holds_all_that_was_learned_so_far() -> None:
    """A step entered is told with what is known by then; one that comes twice is added up."""
    entered: list[tuple[str, BuildDiagnostics]] = []
    log = BuildLog(lambda step, learned: entered.append((step, learned)))
    rung = ExportAttempt("dynamo", ok=False, reason="refused", seconds=1.0)
    dropped = PassOutcome("onnxsim", applied=False, nodes_before=3, nodes_after=3, reason="drift")
    with log.step("source"):
        pass
    log.add_notes(("eval() was forgotten",))
    with log.step("export"):
        pass
    log.add_attempt(rung)
    log.set_passes((dropped,))
    with pytest.raises(ValueError, match="no"), log.step("export"):
        raise ValueError("no")
    assert [step for step, _ in entered] == ["source", "export", "export"]
    assert [learned.notes for _, learned in entered] == [(), ("eval() was forgotten",), ("eval() was forgotten",)]
    assert (entered[1][1].attempts, entered[2][1].attempts) == ((), (rung,))
    assert (log.diagnostics.attempts, log.diagnostics.passes) == ((rung,), (dropped,))
    assert list(log.diagnostics.seconds) == ["source", "export"]
    assert log.diagnostics.peak_rss_bytes > 2**20
