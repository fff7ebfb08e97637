"""Compares the findings of `check` for 1,000 repository variants with the recorded results of a real Triton."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agreement.values import ServerResult, explanation, on_stock_backend
from agreement.variants import all_variants
from check_agreement import highest_severity

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
RESULTS = [
    on_stock_backend(ServerResult(**entry))
    for entry in json.loads((BENCHMARKS / "agreement" / "server_results.json").read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def severities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the highest severity of the findings for each variant, by name, as the benchmark compares it."""
    root = tmp_path_factory.mktemp("variants")
    highest: dict[str, str] = {}
    for variant in all_variants():
        directory = root / variant.folder
        variant.write(directory)
        highest[variant.name] = highest_severity(directory)
    return highest


def test_recorded_results_match_the_variants(severities: dict[str, str]) -> None:
    """The recorded results are for exactly these variants."""
    assert len(RESULTS) > 1000
    assert {result.name for result in RESULTS} <= set(severities)


@pytest.mark.parametrize("group", ["core", "backend", "layout", "syntax"])
def test_errors_match_what_triton_rejects(severities: dict[str, str], group: str) -> None:
    """There are no false positives or negatives except the explained ones."""
    mismatches = [
        (result.name, result.outcome, result.message, severities[result.name])
        for result in RESULTS
        if result.group == group
        and (result.outcome == "accept") is (severities[result.name] == "error")
        and not explanation(result)
    ]
    assert mismatches == []
