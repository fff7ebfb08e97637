"""The explanation of `repogen build --explain`."""

from __future__ import annotations

from pathlib import Path

import pytest

from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.errors import ErrorRecord
from repogen.reporting.plan_text import explain_text

_LATER = {"configure": 0.1, "stage": 0.1, "smoke": 1.0, "publish": 0.1}


def _rows(model: ModelReport) -> list[list[str]]:
    lines = explain_text(BuildReport(Path("r"), (model,))).splitlines()[2:]
    return [[cell for cell in line.split("  ") if cell] for line in lines]


def _explained(model: ModelReport) -> list[tuple[str, str]]:
    return [(row[2].strip(), row[3].strip()) for row in _rows(model)]


def test_model_that_is_up_to_date() -> None:
    """No step ran."""
    assert _explained(ModelReport("m", Status.UNCHANGED, version=3)) == [
        ("not run", "no input changed since version 3")
    ]


def test_steps_that_ran_have_the_changed_input() -> None:
    """And those of the cache say that their inputs did not change."""
    reasons = ("the weights file changed", "triton.instance_group in the spec changed")
    weights = ModelReport(
        "m",
        Status.PUBLISHED,
        seconds={"worker": 1.0, "export": 1.0} | _LATER,
        reasons=reasons,
        export_reasons=reasons[:1],
    )
    assert _explained(weights) == [("ran", reasons[0]), *[("ran", "; ".join(reasons))] * 3]
    template = ModelReport(
        "m", Status.PUBLISHED, seconds={"cache": 0.1} | _LATER, reasons=("the template a changed",), from_cache=True
    )
    assert _explained(template) == [
        ("from the cache", "an earlier build had the same inputs for these steps"),
        *[("ran", "the template a changed")] * 3,
    ]


@pytest.mark.parametrize("reason", ["the template a changed", "the file of triton.label changed"])
def test_export_that_no_changed_input_explains(reason: str) -> None:
    """The cache had no result."""
    model = ModelReport("m", Status.PUBLISHED, seconds={"export": 1.0} | _LATER, reasons=(reason,))
    assert _explained(model)[0] == ("ran", f"{reason}, and no earlier result is in the cache")


def test_steps_that_did_not_run_have_the_option() -> None:
    """Or the failure."""
    seconds = {"export": 1.0, "configure": 0.1}
    model = ModelReport("m", Status.VERIFIED, seconds=seconds, reasons=("x is new",))
    assert _explained(model)[2:] == [("not run", "--no-smoke was given"), ("not run", "--dry-run was given")]
    failed = ModelReport("m", Status.FAILED, seconds=seconds, reasons=("x is new",), error=ErrorRecord("c", "no"))
    assert _explained(failed)[2:] == [("not run", "the model failed")] * 2
