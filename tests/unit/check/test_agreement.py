"""What `check` says of a thousand variants of repositories, against what a real Triton made of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agreement.values import Truth, excuse
from agreement.variants import all_variants

from repogen.check.checker import check

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TRUTHS = [Truth(**entry) for entry in json.loads((BENCHMARKS / "agreement" / "truth.json").read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the codes of the errors in each variant, by name."""
    root = tmp_path_factory.mktemp("variants")
    found = {}
    for variant in all_variants():
        directory = root / variant.folder
        variant.write(directory)
        found[variant.name] = [finding.code for finding in check(directory) if finding.severity == "error"]
    return found


def test_the_server_judged_what_there_is_to_judge(errors: dict[str, Any]) -> None:
    """The recorded truth is of these very variants."""
    assert len(TRUTHS) > 1000
    assert {truth.name for truth in TRUTHS} <= set(errors)


@pytest.mark.parametrize("group", ["core", "backend", "layout", "syntax"])
def test_errors_are_what_the_server_refuses(errors: dict[str, list[str]], group: str) -> None:
    """No false accept and no false reject, but for those that are explained."""
    wrong = [
        (truth.name, truth.outcome, truth.message, errors[truth.name])
        for truth in TRUTHS
        if truth.group == group and (truth.outcome == "accept") is bool(errors[truth.name]) and not excuse(truth)
    ]
    assert wrong == []
