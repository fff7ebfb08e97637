"""The trials as a plot: a Vega-Lite document, and an SVG that needs no network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from repogen.tune.search import pareto_front

if TYPE_CHECKING:
    from repogen.artifacts.tune import Trial, TuneReport

_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"


def pareto_plot(report: TuneReport) -> dict[str, object]:
    """Return a Vega-Lite document: throughput over p99 of each trial; a line joins the best ones in both figures.

    A config that uses less memory than those of the line is also part of the Pareto front.
    """
    points = [
        {
            "trial": trial.number,
            "p99": trial.figures.p99,
            "throughput": trial.figures.throughput,
            "memory": round(trial.figures.memory_bytes / 1e6),
            "kind": _kind(report, trial),
            "settings": ", ".join(f"{name} {value}" for name, value in trial.settings.items()),
        }
        for trial in report.trials
        if trial.figures is not None and trial.state == "measured"
    ]
    x = {"field": "p99", "type": "quantitative", "title": "p99 latency, ms", "scale": {"zero": False}}
    y = {"field": "throughput", "type": "quantitative", "title": "rows per second", "scale": {"zero": False}}
    tooltip = [{"field": name} for name in ("trial", "p99", "throughput", "memory", "settings")]
    color = {"field": "kind", "title": None, "scale": {"domain": list(_COLORS), "range": list(_COLORS.values())}}
    front = pareto_front([_without_memory(trial) for trial in report.trials])
    return {
        "$schema": _SCHEMA,
        "title": f"{report.model} version {report.version}, {report.concurrency} concurrent requests",
        "width": 560,
        "height": 340,
        "layer": [
            {
                "data": {"values": [point for point in points if point["trial"] in front]},
                "mark": {"type": "line", "opacity": 0.4, "color": "#888"},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "size": 70},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": color,
                    "shape": {**color, "scale": {"domain": list(_COLORS)}},
                    "tooltip": tooltip,
                },
            },
        ],
    }


def pareto_svg(report: TuneReport) -> str:
    """Return the plot as an SVG."""
    import vl_convert  # noqa: PLC0415 - loads a JavaScript engine

    return str(vl_convert.vegalite_to_svg(pareto_plot(report)))


_COLORS = {
    "chosen": "#d55e00",
    "Pareto front": "#0072b2",
    "spec": "#009e73",
    "auto-complete": "#cc79a7",
    "other": "#999999",
}
"""Colors that people with a color vision deficiency can tell apart (Okabe and Ito)."""


def _kind(report: TuneReport, trial: Trial) -> str:
    if trial.number == report.chosen:
        return "chosen"
    if trial.origin != "search":
        return {"spec": "spec", "auto": "auto-complete"}[trial.origin]
    return "Pareto front" if trial.number in report.pareto else "other"


def _without_memory(trial: Trial) -> Trial:
    return trial if trial.figures is None else replace(trial, figures=replace(trial.figures, memory_bytes=0))
