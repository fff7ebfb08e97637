"""A lossy model in every report: its quality, what was dropped and why, and no claim of parity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from repogen.artifacts.built_model import Gain, Lossy, PassOutcome, Quality
from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.registry.mlflow.metrics import metrics
from repogen.reporting.json import as_dict
from repogen.reporting.json_types import BuildDocument
from repogen.reporting.markdown import report_markdown
from repogen.reporting.text import build_text

QUALITY = Quality(0.958, 0.956, 0.01)
GAIN = Gain(12.1, 6.6, 1.8333, 1.71, 1.95, 1.02)
SLOWER = Gain(6.6, 6.7, 0.99, 0.95, 1.03, 1.02)
SUMMARY = "lossy: int8-dynamic, quality 0.958 -> 0.956 (budget 0.01)"
MODEL = ModelReport(
    "digits",
    Status.PUBLISHED,
    version=1,
    sha256="0" * 64,
    exporter="dynamo",
    parity_cases=5,
    max_abs_diff=0.31,
    nodes_exported=8,
    nodes_optimized=13,
    passes=(
        PassOutcome("int8-dynamic", applied=True, nodes_before=8, nodes_after=13, gain=GAIN, quality=QUALITY),
        PassOutcome(
            "fp16",
            applied=False,
            nodes_before=13,
            nodes_after=13,
            reason=f"no measured gain: {SLOWER}",
            gain=SLOWER,
            quality=QUALITY,
        ),
    ),
    lossy=Lossy(("int8-dynamic",), "qint8", QUALITY),
)
WITH_PARITY = replace(MODEL, lossy=Lossy(("fp16",), "float16"))


def report(model: ModelReport) -> BuildReport:
    """Return the report of a build of one model."""
    return BuildReport(Path("model_repository"), (model,))


def test_console_has_the_quality_and_every_figure() -> None:
    """The cell of parity does not claim it."""
    lines = build_text(report(MODEL), debug=False).splitlines()
    assert "lossy, 3.1e-01 in 5" in lines[2]
    assert f"  digits: {SUMMARY}" in lines
    gain = "1.83x as fast (12.1 -> 6.6 ms; interval 1.71 to 1.95)"
    assert f"  digits: int8-dynamic was applied: {gain}" in lines
    assert any(line.startswith("  digits: fp16 was skipped: no measured gain: 0.99x as fast") for line in lines)
    assert "  3.1e-01 in 5  " in build_text(report(WITH_PARITY), debug=False)


def test_markdown_has_the_same() -> None:
    """In the table and in the list of passes."""
    text = report_markdown(report(MODEL))
    assert "| lossy, 3.1e-01 in 5 cases |" in text
    assert SUMMARY.replace("_", r"\_").replace(">", "&gt;") in text
    passes = [line for line in text.splitlines() if line.startswith("- int8-dynamic: applied")]
    assert len(passes) == 1
    assert "8 → 13 nodes, quality 0.958" in passes[0]
    assert "1.83x as fast" in passes[0]


@pytest.mark.parametrize(("model", "passed"), [(MODEL, False), (WITH_PARITY, True), (replace(MODEL, lossy=None), True)])
def test_json_does_not_claim_parity(model: ModelReport, passed: bool) -> None:  # noqa: FBT001
    """Only a lossy model within the tolerances has it; the document has its schema."""
    document: Any = as_dict(report(model))
    TypeAdapter(BuildDocument).validate_python(document)
    (entry,) = document["models"]
    assert entry["parity"]["passed"] is passed
    assert entry["passes"][0]["gain"]["ratio"] == 1.8333
    assert entry["passes"][1]["quality"] == {"reference": 0.958, "optimized": 0.956, "max_drop": 0.01}
    assert (entry["lossy"] is None) == (model.lossy is None)
    if model is MODEL:
        assert entry["lossy"]["summary"] == SUMMARY
        assert entry["lossy"]["passes"] == ["int8-dynamic"]


def test_metrics_have_gain_and_quality() -> None:
    """Of every pass that was measured."""

    class Built:
        parity = type("Parity", (), {"cases": (), "max_abs_diff": 0.31, "max_rel_diff": 0.1})()

    values = {name: value for name, value, _ in metrics(Built(), MODEL)}  # type: ignore[arg-type] # parity is enough
    assert values["optimize/int8-dynamic_gain"] == 1.8333
    assert values["optimize/fp16_gain"] == 0.99
    assert values["optimize/int8-dynamic_quality"] == 0.956
    assert values["optimize/reference_quality"] == 0.958
