"""The HTML report that a build writes next to its spec."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.report import BuildReport, ModelReport, Status
from repogen.build import page
from repogen.build.page import write_page
from repogen.build.plan import BuildOptions, BuildPlan
from repogen.reporting.results import REPORTS, read_results

from .conftest import PLAIN, write_spec

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import Spec

MODELS = (ModelReport("m", Status.PUBLISHED, version=1), ModelReport("other", Status.FAILED))


def plan_of(spec: Spec, repository: Path | None = None) -> BuildPlan:
    """Return a plan for all models."""
    return BuildPlan(spec, BuildOptions(), repository or spec.repository, ("m",), ("m",), {})


def test_report_is_next_to_the_spec(tmp_path: Path) -> None:
    """With the results of the models that were built, in files that no reader sees half-written."""
    spec = write_spec(tmp_path, m=PLAIN)
    report, html = write_page(plan_of(spec), BuildReport(spec.repository, MODELS))
    directory = spec.root / REPORTS
    assert report.page == directory / f"{spec.path.stem}.html"
    assert report.page is not None
    assert report.page.read_text(encoding="utf-8") == html
    assert "1 failed, 1 published" in html
    assert read_results(directory, "m").build is not None
    assert sorted(path.name for path in directory.iterdir()) == ["build", f"{spec.path.stem}.html"]


@pytest.mark.parametrize("place", ["build", "build/reports", "."])
def test_nothing_is_written_into_a_repository(tmp_path: Path, place: str) -> None:
    """Triton would read `reports` as a model."""
    spec = write_spec(tmp_path, m=PLAIN)
    report, html = write_page(plan_of(spec, spec.root / place), BuildReport(spec.repository, MODELS))
    assert (report.page, html) == (None, "")
    assert report.notes == ("no HTML report was written: build/reports is in the model repository",)
    assert not (spec.root / "build").exists()


def test_build_does_not_fail_without_a_place_for_the_report(tmp_path: Path) -> None:
    """The models are published; a note has the reason, and MLflow gets the report."""
    spec = write_spec(tmp_path, m=PLAIN)
    (spec.root / "build").write_text("a file", encoding="utf-8")
    report, html = write_page(plan_of(spec), BuildReport(spec.repository, MODELS))
    assert report.page is None
    assert html
    assert "no HTML report was written: " in report.notes[0]
    assert "Not a directory" in report.notes[0] or "File exists" in report.notes[0]


def test_bug_in_the_report_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of what was published must not be lost."""

    def fail(*_: object) -> str:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(page, "build_page", fail)
    spec = write_spec(tmp_path, m=PLAIN)
    report, _ = write_page(plan_of(spec), BuildReport(spec.repository, MODELS))
    assert report == replace(
        BuildReport(spec.repository, MODELS),
        notes=("no HTML report was written: unexpected ZeroDivisionError: x; please report this bug",),
    )
