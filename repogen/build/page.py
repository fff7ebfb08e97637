"""The HTML report of a build, and the results and costs of its models, in ``build/reports`` next to the spec."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.build.costs import record_costs
from repogen.files import is_inside
from repogen.reporting.html.page import build_page
from repogen.reporting.results import REPORTS, build_document, read_results, write_build_results, write_file

if TYPE_CHECKING:
    from repogen.artifacts.report import BuildReport
    from repogen.build.plan import BuildPlan


def write_page(plan: BuildPlan, report: BuildReport) -> tuple[BuildReport, str]:
    """Write the report of a build.

    Nothing is written into a model repository. A report that cannot be written does not fail the build: what was
    published stays published.

    Args:
        plan: What was built.
        report: The result.

    Returns:
        The report with the path of the page, or with a note if there is none; and the page.
    """
    directory = plan.spec.root / REPORTS
    if is_inside(directory, plan.repository):
        return _with_note(report, f"{REPORTS} is in the model repository"), ""
    path = directory / f"{plan.spec.path.stem}.html"
    html = ""
    try:
        results = {model.name: read_results(directory, model.name) for model in report.models}
        html = build_page(build_document(report), results)
        write_build_results(report, directory)
        record_costs(report, plan.spec.root)
        write_file(html, path, plan.spec.root)
    except OSError as error:
        return _with_note(report, f"{path} can't be written: {error.strerror}"), html
    except Exception as error:  # noqa: BLE001 - the models are published, and their reports must not be lost
        return _with_note(report, f"unexpected {type(error).__name__}: {error}; please report this bug"), html
    return replace(report, page=path), html


def _with_note(report: BuildReport, reason: str) -> BuildReport:
    return replace(report, notes=(*report.notes, f"no HTML report was written: {reason}"))
