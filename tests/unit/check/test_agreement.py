"""Compares the findings of `check` for 1,000 repository variants with the recorded results of a real Triton."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agreement.values import ServerResult, explanation, on_stock_backend
from agreement.variants import all_variants

from repogen.api.check import check
from repogen.errors import SpecError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
RESULTS = [
    on_stock_backend(ServerResult(**entry))
    for entry in json.loads((BENCHMARKS / "agreement" / "server_results.json").read_text(encoding="utf-8"))
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
    assert len(RESULTS) > 1000
    assert {result.name for result in RESULTS} <= set(errors)


@pytest.mark.parametrize("group", ["core", "backend", "layout", "syntax"])
def test_errors_match_what_triton_rejects(errors: dict[str, list[str]], group: str) -> None:
    """There are no false positives or negatives except the explained ones."""
    mismatches = [
        (result.name, result.outcome, result.message, errors[result.name])
        for result in RESULTS
        if result.group == group
        and (result.outcome == "accept") is bool(errors[result.name])
        and not explanation(result)
    ]
    assert mismatches == []
