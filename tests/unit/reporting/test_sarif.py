"""Findings as SARIF for code scanning."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel
from sarif_pydantic import Sarif

from repogen.api.check import check
from repogen.reporting.sarif import sarif_document
from repogen.triton_config.rules.findings import RULES, Finding
from tests.support.sarif import schema_errors
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from collections.abc import Iterator

FINDING = Finding("RG103", "error", "max_batch_size is -1", "use 0", path="r/m/config.pbtxt", line=3, column=2)


def _parse(findings: list[Finding], workspace: Path) -> Sarif:
    """Return the document, read back from JSON and validated against the schema of the format."""
    text = json.dumps(sarif_document(findings, workspace))
    assert schema_errors(json.loads(text)) == []
    return Sarif.model_validate_json(text)


def _unknown_keys(model: BaseModel) -> Iterator[str]:
    """Return keys that the format does not define; the library accepts them."""
    yield from (model.model_extra or {})
    for value in dict(model).values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, BaseModel):
                yield from _unknown_keys(item)


def _hashes(findings: list[Finding]) -> list[str]:
    results = _parse(findings, Path()).runs[0].results
    assert results is not None
    return [result.partial_fingerprints["primaryLocationLineHash"] for result in results if result.partial_fingerprints]


def test_findings_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every finding has a rule with its page, a relative path, a line and a column."""
    add_model(tmp_path / "repository", "m", CONFIG.replace("[ 4 ]", "[ 5 ]").replace("[ 3 ]", "[ 4 ]"))
    monkeypatch.chdir(tmp_path)
    findings = list(check("repository"))
    document = _parse(findings, tmp_path)
    assert list(_unknown_keys(document)) == []
    (run,) = document.runs
    assert run.results
    assert len(run.results) == len(findings) > 1
    assert run.tool.driver.rules
    for finding, result in zip(findings, run.results, strict=True):
        assert result.rule_index is not None
        rule = run.tool.driver.rules[result.rule_index]
        assert (result.rule_id, rule.id, result.level) == (finding.code, finding.code, finding.severity)
        assert rule.short_description is not None
        assert rule.short_description.text == RULES[finding.code]
        assert result.locations
        place = result.locations[0].physical_location
        assert place is not None
        assert place.artifact_location is not None
        assert place.region is not None
        assert place.artifact_location.uri == "repository/m/config.pbtxt"
        assert (place.region.start_line, place.region.start_column) == (finding.line or 1, finding.column or 1)


def test_every_rule_has_a_summary() -> None:
    """GitHub shows the short and the full description of each rule, and its page as help."""
    findings = [replace(FINDING, code=code) for code in RULES]
    rules = _parse(findings, Path()).runs[0].tool.driver.rules
    assert rules is not None
    assert [rule.id for rule in rules] == sorted(RULES)
    for rule in rules:
        assert rule.full_description is not None
        assert rule.full_description.text
        assert not rule.full_description.text.startswith("#")


def test_hash_survives_an_edit_above() -> None:
    """A finding that moves to another line, or whose count changes, is the same alert."""
    moved = replace(FINDING, line=40, column=9, message="max_batch_size is -2")
    assert _hashes([FINDING]) == _hashes([moved])


@pytest.mark.parametrize(
    "other",
    [
        replace(FINDING, code="RG104"),
        replace(FINDING, path="r/n/config.pbtxt"),
        replace(FINDING, message="another message"),
    ],
)
def test_hash_differs_for_another_finding(other: Finding) -> None:
    """Another rule, file or message is another alert."""
    assert _hashes([FINDING]) != _hashes([other])


def test_equal_findings_are_counted() -> None:
    """Two findings that differ in the line only are two alerts."""
    first, second = _hashes([FINDING, replace(FINDING, line=9)])
    assert first != second


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("m/config.pbtxt", "m/config.pbtxt"),
        ("a b%/x#y", "a%20b%25/x%23y"),
        ("m/\udcff", "m/%FF"),
        ("../other/x", "file://{parent}/other/x"),
        ("", "."),
    ],
)
def test_paths(path: str, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in the workspace is relative to it; the others are absolute."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    results = _parse([replace(FINDING, path=path, message="name \udcff")], workspace).runs[0].results
    assert results
    assert results[0].locations
    place = results[0].locations[0].physical_location
    assert place is not None
    assert place.artifact_location is not None
    assert place.artifact_location.uri == uri.format(parent=tmp_path)
    assert results[0].message.text == "name \\udcff\nuse 0"


def test_no_findings() -> None:
    """The document has a run without results, which closes old alerts."""
    (run,) = _parse([], Path()).runs
    assert run.results == []


def test_name_is_not_a_link() -> None:
    """A name in a message may contain the syntax of a link."""
    results = _parse([replace(FINDING, message="[open](https://evil.example)")], Path()).runs[0].results
    assert results
    assert "](" not in (results[0].message.text or "")
