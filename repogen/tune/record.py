"""The files of a report: ``build/reports/tune/MODEL/tune.json`` next to the spec, and its plots."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.reporting.json import as_dict
from repogen.reporting.results import write_file
from repogen.tune.plot import pareto_plot, pareto_svg

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tune import TuneReport

JSON_FILE = "tune.json"
PLOT_FILE = "pareto.vl.json"
SVG_FILE = "pareto.svg"


def write_record(report: TuneReport, root: Path) -> TuneReport:
    """Write the files of a report, and return it with their paths.

    Args:
        report: The report.
        root: Directory of the spec.

    Raises:
        OSError: A file cannot be written.
    """
    directory = root / "build" / "reports" / "tune" / report.model
    texts: dict[str, str] = {}
    if any(trial.feasible or trial.violations for trial in report.trials):
        texts = {PLOT_FILE: _json(pareto_plot(report)), SVG_FILE: pareto_svg(report)}
    complete = replace(report, files=tuple(directory / name for name in (JSON_FILE, *texts)))
    for name, text in {**texts, JSON_FILE: _json(as_dict(complete))}.items():
        write_file(text, directory / name, root)
    return complete


def _json(document: dict[str, object]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
