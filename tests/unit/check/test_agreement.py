"""Compares the findings of `check` for 1,000 repository variants with the recorded results of a real Triton."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agreement.values import Truth, excuse, on_stock_backend
from agreement.variants import all_variants

from repogen.api.check import check
from repogen.errors import SpecError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TRUTHS = [
    on_stock_backend(Truth(**entry))
    for entry in json.loads((BENCHMARKS / "agreement" / "truth.json").read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the codes of the errors of each variant, by name."""
    root = tmp_path_factory.mktemp("variants")
    codes = {}
    for variant in all_variants():
        directory = root / variant.folder
        variant.write(directory)
        codes[variant.name] = _errors(directory)
    return codes


def _errors(directory: Path) -> list[str]:
    try:
        return [finding.code for finding in check(directory) if finding.severity == "error"]
    except SpecError as error:
        return [] if error.code == "check.nothing" else [error.code]  # Triton accepts a repository without a model


def test_recorded_results_match_the_variants(errors: dict[str, Any]) -> None:
    """The recorded results are for exactly these variants."""
    assert len(TRUTHS) > 1000
    assert {truth.name for truth in TRUTHS} <= set(errors)


@pytest.mark.parametrize("group", ["core", "backend", "layout", "syntax"])
def test_errors_match_what_triton_rejects(errors: dict[str, list[str]], group: str) -> None:
    """There are no false positives or negatives except the explained ones."""
    mismatches = [
        (truth.name, truth.outcome, truth.message, errors[truth.name])
        for truth in TRUTHS
        if truth.group == group and (truth.outcome == "accept") is bool(errors[truth.name]) and not excuse(truth)
    ]
    assert mismatches == []
