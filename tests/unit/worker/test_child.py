"""How places and failures of the worker are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import ExitCode, ExportError, ParityError, RepogenError
from repogen.values.artifacts import RungOutcome
from repogen.worker.child import _bug, _missing, _shown
from repogen.worker.sequence import Clock, none_worked

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {"dynamo": "refused", "torchscript": "drifts"}


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
    assert _shown(where.format(root=tmp_path), tmp_path) == shown


def test_a_missing_extra_names_its_installation() -> None:
    """Without torch there is no build; another module missing is a bug."""
    assert _missing(ModuleNotFoundError("no", name="torch.onnx")).exit_code == ExitCode.SPEC
    assert _missing(ModuleNotFoundError("no", name="elsewhere")).exit_code == ExitCode.BUG


def test_what_nobody_meant_is_a_bug_and_memory_is_not() -> None:
    """Out of memory is the model's; the rest is ours, with its traceback in the details."""
    assert _bug(MemoryError()).exit_code == ExitCode.EXPORT
    assert (_bug(ValueError("x\ny")).message, _bug(ValueError("x")).exit_code) == (
        "unexpected ValueError: x",
        ExitCode.BUG,
    )


def test_when_no_exporter_holds_every_reason_is_told() -> None:
    """The error that came furthest decides code and exit code; hint and place come from whoever has them."""
    errors: list[RepogenError] = [
        ExportError("refused", "rewrite it", where="m.py:1", code="export.dynamo"),
        ParityError("drifts", code="parity.drift"),
    ]
    rungs = [RungOutcome(name, ok=False, reason=reason, seconds=1) for name, reason in REASONS.items()]
    error = none_worked(rungs, errors)
    assert (error.code, error.exit_code, error.hint, error.where) == ("parity.drift", 4, "rewrite it", "m.py:1")
    assert error.message == "no exporter kept the model as it is:\n  dynamo: refused\n  torchscript: drifts"
    assert none_worked(rungs[:1], errors[:1]) is errors[0]


def test_a_step_that_comes_twice_is_added_up() -> None:
    """Each exporter exports."""
    entered: list[str] = []
    clock = Clock(entered.append)
    for name in ("export", "validate", "export"):
        with clock.step(name):
            pass
    assert entered == ["export", "validate", "export"]
    assert list(clock.seconds) == ["export", "validate"]
