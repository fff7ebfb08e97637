"""The sections of a model that a build measured: parity, optimization, smoke test, duration, config, provenance."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import UNCHANGED
from repogen.reporting.bench_text import decimal
from repogen.reporting.html.charts import Axis, Value, row_chart
from repogen.reporting.html.config_rows import config_fields
from repogen.reporting.html.parts import Cell, Code, Facts, Matrix, Notes, Section, Table, Text
from repogen.reporting.html.scales import TIMES, number_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from repogen.reporting.html.charts import RowChart
    from repogen.reporting.html.parts import Part
    from repogen.reporting.json_types import (
        ErrorDistributionDocument,
        ErrorDocument,
        GainDocument,
        ModelDocument,
        ParityCaseDocument,
        ParityDocument,
        PassDocument,
        ProvenanceDocument,
        QualityDocument,
        SmokeDocument,
        TensorDocument,
    )

PARITY, GRAPH, SMOKE, CONFIG = "Parity with the original", "Export and optimization", "Smoke test", "Configuration"
MAX_OUTPUTS = 8
"""Outputs with a plot of their own; the table has all."""
_MAX_OPERATORS = 40
_MAX_BINS = 14
_MAX_STAGES = 4
_MAX_CONFIG = 20_000
_SHORTEST = 0.1
_KEY = re.compile(r"-?[0-9]{1,3}", re.ASCII)
_MAX_KEY = 600
"""Of a bin, from 10**-300 to 10**300; floating-point numbers have few more."""


def error_section(error: ErrorDocument, title: str = "Failure") -> Section:
    """Return what failed, and what to do."""
    where = () if not error["where"] or error["where"] in error["message"] else (("Where", error["where"]),)
    hint = (("What to do", error["hint"]),) if error["hint"] else ()
    facts = Facts((("Code", f"{error['code']} (exit code {error['exit_code']})"), *where, *hint))
    return Section(title, (Text(error["message"], bad=True), facts))


def build_sections(model: ModelDocument) -> Iterator[Section]:
    """Yield the sections of one model of a build."""
    if model["error"] is not None:
        yield error_section(model["error"])
    parts: dict[str, Iterator[Part]] = {
        "Inputs and outputs": _signature_parts(model),
        PARITY: _parity_parts(model["parity"]),
        GRAPH: _graph_parts(model),
        SMOKE: _smoke_parts(model["smoke"]),
        CONFIG: config_parts(model["config"] or ""),
        "Duration of the build": _seconds_parts(model["seconds"]),
        "Provenance": provenance_parts(model["provenance"]),
    }
    for title, iterator in parts.items():
        section = Section(title, tuple(iterator))
        if section.parts:
            yield section


def _signature_parts(model: ModelDocument) -> Iterator[Part]:
    if model["inputs"] or model["outputs"]:
        yield tensor_table(model["inputs"], model["outputs"])


def tensor_table(inputs: Sequence[TensorDocument], outputs: Sequence[TensorDocument]) -> Table:
    """Return the inputs and outputs of a model."""
    rows = [
        (tensor["name"], kind, tensor["dtype"], shape_text(tensor["shape"]))
        for kind, tensors in (("input", inputs), ("output", outputs))
        for tensor in tensors
    ]
    return Table("Inputs and outputs, with the batch", ("Name", "Kind", "Type", "Shape"), tuple(rows))


def shape_text(shape: Sequence[int | str]) -> str:
    """Return a shape in one line."""
    return f" {TIMES} ".join(str(size) for size in shape) or "scalar"


def config_parts(config: str) -> Iterator[Part]:
    """Yield the fields of a config.pbtxt, each with its reason, and the text; nothing without a text."""
    if config:
        rows = tuple((field.name, field.value, field.reason) for field in config_fields(config[:_MAX_CONFIG]))
        yield Table("Fields of config.pbtxt", ("Field", "Value", "Reason"), rows)
        yield Code("Text of config.pbtxt", config)


def provenance_parts(origin: ProvenanceDocument | None) -> Iterator[Part]:
    """Yield how a version was built; nothing without a version."""
    if origin is None:
        return
    yield Facts((("Target", f"Triton {origin['target']}"), ("Git commit", origin["git_commit"] or "-")))
    tools = tuple(sorted(origin["tools"].items()))
    yield Table("Versions of the tools", ("Tool", "Version"), tools, folded=True)
    inputs = tuple(sorted(origin["fingerprint"].items()))
    caption = "Everything that the build depends on, with its digest or version"
    yield Table(caption, ("Input", "Digest or version"), inputs, folded=True)


def _parity_parts(parity: ParityDocument) -> Iterator[Part]:
    sweep, outputs = parity["sweep"], parity["outputs"]
    if not (parity["cases"] or sweep):
        return
    yield from _parity_result(parity)
    yield from (_errors(output, sweep) for output in outputs[:MAX_OUTPUTS])
    yield from (_histogram(output, bins) for output in outputs[:MAX_OUTPUTS] if (bins := _bins(output)))
    if len(outputs) > MAX_OUTPUTS:
        yield Text(f"Plots of the first {MAX_OUTPUTS} of {len(outputs)} outputs; the table has all.")
    if sweep:
        yield _case_table(sweep)
    if parity["skipped"]:
        caption = "Cases that were skipped because parity.budget_seconds was used up"
        yield Code(caption, "\n".join(parity["skipped"]))


def _parity_result(parity: ParityDocument) -> Iterator[Part]:
    """Yield the result, and the cases that differ. A build that measured nothing has the figures of the manifest."""
    sweep, count = parity["sweep"], parity["cases"] or len(parity["sweep"])
    different = [case for case in sweep if not case["passed"]]
    result = "within the tolerances" if parity["passed"] else "lossy: judged by its quality"
    absolute = _largest(case["max_abs_diff"] for case in sweep) if sweep else _figure(parity["max_abs_diff"])
    relative = _largest(case["max_rel_diff"] for case in sweep) if sweep else _figure(parity["max_rel_diff"])
    yield Facts(
        (
            ("Result", f"{len(different)} of {count} cases differ" if different else result),
            ("Cases", str(count)),
            ("Largest absolute difference", absolute),
            ("Largest relative difference", relative),
        )
    )
    if different:
        rows = tuple((case["name"], case["reason"]) for case in different)
        yield Table("Cases that differ", ("Case", "Reason"), rows, bad=frozenset(range(len(rows))))


def _largest(values: Iterable[float | str]) -> str:
    return _figure(max(float(value) for value in values))


def _errors(output: ErrorDistributionDocument, sweep: Sequence[ParityCaseDocument]) -> RowChart | Text:
    """Return the errors of an output by size; a sentence if there are none, because a plot of zeros shows nothing."""
    numbers = [value for case in sweep for value in _differences(case, output["name"])]
    if numbers and not any(numbers):
        return Text(f"{output['name']} is equal in all cases.")
    return _error_chart(output, sweep)


def _differences(case: ParityCaseDocument, name: str) -> list[float]:
    """Return the largest absolute error of an output in one case: one number, or none if it was not measured."""
    return [float(each["max_abs_diff"]) for each in case["outputs"] if each["name"] == name]


def _error_chart(output: ErrorDistributionDocument, sweep: Sequence[ParityCaseDocument]) -> RowChart:
    atol = output["atol"]
    limit_text = (
        "" if atol is None else f"atol {number_text(atol)}, plus rtol {number_text(output['rtol'])} of each value"
    )
    axis = Axis(
        f"Largest absolute error of {output['name']} by size",
        _sizes_heading(sweep),
        "Error",
        "dot",
        atol or None,
        limit_text if atol else "",
    )
    values = []
    sweep = sorted(sweep, key=lambda case: math.prod(map(float, case["sizes"].values())))
    for case, label in zip(sweep, _case_labels(sweep), strict=True):
        numbers = _differences(case, output["name"])
        values += [Value(label, number, _figure(number), bad=not case["passed"]) for number in numbers]
    return row_chart(axis, values)


def _sizes_heading(sweep: Sequence[ParityCaseDocument]) -> str:
    names = list(sweep[0]["sizes"]) if sweep else []
    return f" {TIMES} ".join(names) or "Case"


def _case_labels(sweep: Sequence[ParityCaseDocument]) -> list[str]:
    """Return the sizes of each case; cases of equal sizes are numbered."""
    labels: list[str] = []
    numbers: Counter[str] = Counter()
    for case in sweep:
        sizes = f" {TIMES} ".join(str(size) for size in case["sizes"].values()) or "case"
        numbers[sizes] += 1
        labels.append(sizes if numbers[sizes] == 1 else f"{sizes} (#{numbers[sizes]})")
    return labels


def _bins(output: ErrorDistributionDocument) -> dict[int, int]:
    """Return the number of values by the key of each bin; a key that is not a number, or a large one, is left out."""
    counts = ((key, count) for key, count in output["histogram"].items() if _KEY.fullmatch(key))
    return {int(key): count for key, count in counts if -_MAX_KEY <= int(key) <= _MAX_KEY}


def _histogram(output: ErrorDistributionDocument, counts: Mapping[int, int]) -> RowChart:
    total = output["exact"] + sum(counts.values())
    axis = Axis(f"Errors of {output['name']} by magnitude, {total:,} values in all cases", "Error from", "Percent")
    high = max(counts)
    low = max(min(counts), high - _MAX_BINS + 1)
    shares = {"equal": output["exact"]} if output["exact"] else {}
    if smaller := sum(count for key, count in counts.items() if key < low):
        shares[f"below {_bin_text(low)}"] = smaller
    shares |= {_bin_text(key): counts.get(key, 0) for key in range(low, high + 1)}
    percent = {label: 100 * count / (total or 1) for label, count in shares.items()}
    return row_chart(axis, [Value(label, number, f"{number:.1f}") for label, number in percent.items()])


def _bin_text(key: int) -> str:
    """Return the smallest error of a bin.

    >>> _bin_text(-12), _bin_text(-11)
    ('1e-6', '3.2e-6')
    """
    return number_text(10 ** (key / 2))


def _case_table(sweep: Sequence[ParityCaseDocument]) -> Table:
    rows = tuple(
        (
            case["name"],
            output["name"],
            _figure(float(output["max_abs_diff"])),
            _figure(float(output["max_rel_diff"])),
            f"{case['cosine']:.7f}",
        )
        for case in sweep
        for output in case["outputs"]
    )
    headings = ("Case", "Output", "Absolute", "Relative", "Cosine of the case")
    return Table("Differences of every case and output", headings, rows, frozenset({2, 3, 4}), folded=True)


def _graph_parts(model: ModelDocument) -> Iterator[Part]:
    exporter = (("Exporter", model["exporter"]),) if model["exporter"] else ()
    opset = (("Opset", str(model["opset"])), ("IR version", str(model["ir_version"]))) if model["opset"] else ()
    if exporter or opset:
        yield Facts((*exporter, *opset))
    attempts = model["exporters"]
    if len(attempts) > 1 or any(not attempt["ok"] for attempt in attempts):
        rows = tuple(
            (each["exporter"], "used" if each["ok"] else "failed", f"{each['seconds']:.1f}", each["reason"] or "-")
            for each in attempts
        )
        failed = frozenset(index for index, each in enumerate(attempts) if not each["ok"])
        headings = ("Exporter", "Result", "Seconds", "Reason")
        yield Table("Export attempts", headings, rows, frozenset({2}), bad=failed)
    if model["passes"]:
        yield _pass_table(model["passes"])
    if matrix := _operator_matrix(model["passes"], model["operators"]):
        yield matrix


def _pass_table(passes: Sequence[PassDocument]) -> Table:
    rows = tuple(
        (
            each["name"],
            "applied" if each["applied"] else "no change" if each["reason"] == UNCHANGED else "not applied",
            f"{each['nodes_before']:,} → {each['nodes_after']:,}",
            _gain_text(each["gain"]),
            _quality_text(each["quality"]),
            each["reason"] if each["reason"] and each["reason"] != UNCHANGED else "-",
        )
        for each in passes
    )
    headings = ("Pass", "Result", "Nodes", "Measured gain", "Quality", "Reason")
    used = [i for i in range(len(headings)) if any(row[i] != "-" for row in rows)]
    return Table(
        "Optimization passes, in order",
        tuple(headings[i] for i in used),
        tuple(tuple(row[i] for i in used) for row in rows),
    )


def _gain_text(gain: GainDocument | None) -> str:
    return "-" if gain is None else f"{gain['ratio']:.2f}x ({gain['low']:.2f} to {gain['high']:.2f})"


def _quality_text(quality: QualityDocument | None) -> str:
    if quality is None:
        return "-"
    return f"{quality['reference']:.6g} → {quality['optimized']:.6g} (budget {quality['max_drop']:g})"


def _operator_matrix(passes: Sequence[PassDocument], operators: Mapping[str, int]) -> Matrix | None:
    """Return the operators as exported, and after each pass that was applied."""
    applied = [each for each in passes if each["applied"] and each["operators_after"]]
    stages = [("Exported", applied[0]["operators_before"])] if applied else []
    stages += [(f"After {each['name']}", each["operators_after"]) for each in applied]
    if not stages and operators:
        stages = [("Published", dict(operators))]
    if not stages:
        return None
    if len(stages) > _MAX_STAGES:
        stages = [stages[0], *stages[1 - _MAX_STAGES :]]
    names = sorted(
        {name for _, counts in stages for name in counts},
        key=lambda name: (-max(counts.get(name, 0) for _, counts in stages), name),
    )
    largest = max((max(counts.values(), default=0) for _, counts in stages), default=0) or 1
    rows = tuple(_operator_row(name, [counts.get(name, 0) for _, counts in stages], largest) for name in names)
    headings = ("Operator", *(title for title, _ in stages))
    caption = "Nodes by operator" + (", before and after each pass that was applied" if len(stages) > 1 else "")
    return Matrix(caption, headings, rows[:_MAX_OPERATORS], max(len(rows) - _MAX_OPERATORS, 0))


def _operator_row(name: str, counts: list[int], largest: int) -> tuple[str, tuple[Cell, ...], bool]:
    return name, tuple(Cell(f"{n:,}", round(100 * n / largest, 2)) for n in counts), len(set(counts)) > 1


def _smoke_parts(smoke: SmokeDocument | None) -> Iterator[Part]:
    if smoke is None:
        return
    passed = sum(check["passed"] for check in smoke["checks"])
    latency = smoke["latency_ms"]
    figures: tuple[tuple[str, str], ...] = ()
    if latency is not None:
        values = " / ".join(decimal(value) for value in (latency["p50"], latency["p95"], latency["p99"]))
        figures = (("Latency of one row: p50, p95, p99", f"{values} ms"),)
    yield Facts(
        (
            ("Result", f"{passed} of {len(smoke['checks'])} checks passed"),
            ("Server", f"Triton {smoke['server_version']} ({smoke['server']})"),
            ("Runtime", smoke["runtime"]),
            *figures,
        )
    )
    rows = tuple(
        (
            check["name"],
            "failed" if not check["passed"] else "warning" if check["warning"] else "passed",
            _difference_text(check["max_abs_diff"]),
            check["detail"] or "-",
        )
        for check in smoke["checks"]
    )
    failed = frozenset(index for index, check in enumerate(smoke["checks"]) if not check["passed"])
    headings = ("Check", "Result", "Largest difference", "Detail")
    yield Table("Checks on the server", headings, rows, frozenset({2}), folded=not failed, bad=failed)
    if smoke["overrides"]:
        yield Notes(tuple(f"the test ran with {override}" for override in smoke["overrides"]))


def _seconds_parts(seconds: Mapping[str, float]) -> Iterator[Part]:
    steps = {step: duration for step, duration in seconds.items() if duration >= _SHORTEST}
    if len(steps) > 1:
        axis = Axis(f"Steps of at least {_SHORTEST} s; worker is the start of the process", "Step", "Seconds")
        yield row_chart(axis, [Value(step, duration, f"{duration:.1f}") for step, duration in steps.items()])


def _difference_text(value: float | str | None) -> str:
    return value if isinstance(value, str) else _figure(value)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.2e}" if math.isfinite(value) else str(value)
