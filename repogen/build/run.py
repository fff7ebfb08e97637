"""Executes a build plan. This module imports everything that builds; an unchanged build does not import it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.artifacts.report import BuildReport
from repogen.build.page import write_page
from repogen.build.schedule import build_models
from repogen.build.session import open_session
from repogen.build.steps import verify_model
from repogen.build.tracking import confirm_published, open_tracking
from repogen.build.verified import export_reasons

if TYPE_CHECKING:
    from repogen.artifacts.progress import Progress
    from repogen.build.plan import BuildPlan


def run_plan(plan: BuildPlan, progress: Progress) -> BuildReport:
    """Build the pending models of a plan, confirm what earlier builds could not, and return all reports.

    Raises:
        RepogenError: No model can be built.
        KeyboardInterrupt: The build was interrupted; nothing is half-written.
    """
    cancelled = threading.Event()
    reports = plan.reports
    with open_tracking(plan, progress, cancelled) as tracking:
        if plan.pending:
            with open_session(plan, progress, tracking, cancelled) as session:
                reports |= (built := build_models(session, verify_model))
                progress.step("", "failed" if any(report.error for report in built.values()) else "done")
        reports |= {
            name: replace(
                reports[name], reasons=reasons, export_reasons=export_reasons(plan.spec.models[name], reasons)
            )
            for name, reasons in plan.reasons.items()
        }
        if tracking is not None:
            for name, version in plan.unconfirmed:
                reports[name] = confirm_published(tracking, plan.repository, reports[name], version)
        report = BuildReport(plan.repository, tuple(reports[name] for name in plan.names), notes=plan.notes)
        html = ""
        if plan.options.report:
            report, html = write_page(plan, report)
        return report if tracking is None else tracking.finish(report, html)
