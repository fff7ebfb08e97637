"""The section of a model with the figures of ``repogen bench``."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from repogen.artifacts.bench import Machine
from repogen.reporting.bench_text import decimal
from repogen.reporting.html.build_sections import error_section
from repogen.reporting.html.charts import Axis, Point, Series, Value, plane, row_chart
from repogen.reporting.html.parts import Facts, Notes, Section, Table, Text
from repogen.reporting.html.scales import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.reporting.html.charts import Plane, RowChart
    from repogen.reporting.html.parts import Part
    from repogen.reporting.json_types import BenchDocument, BenchRowDocument, EstimateDocument, ModelBenchDocument

_MIB = 2**20
_MAX_ROWS = 500
"""Measurements of a model; a benchmark has dozens."""
_NAMES = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "onnxruntime": "ONNX Runtime",
    "grpc": "Triton gRPC",
    "http": "Triton HTTP",
    "shm": "Triton shared memory",
    "triton": "Triton server",
}


def speed_section(document: BenchDocument, model: ModelBenchDocument) -> Section:
    """Return the measurements of one model."""
    return Section("Latency and throughput", tuple(_parts(document, model)))


def _parts(document: BenchDocument, model: ModelBenchDocument) -> Iterator[Part]:
    machine = document["machine"]
    rounds = "1 round" if document["rounds"] == 1 else f"{document['rounds']} interleaved rounds"
    yield Facts(
        (
            ("Measured", f"version {model['version']}"),
            ("Machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB"),
            ("System", f"{machine['system']}, {machine['load']:g} cores in use before the start"),
            *((("Server", model["server"]),) if model["server"] else ()),
            ("Method", f"medians of {rounds} of {document['seconds']:g} s"),
        )
    )
    if Machine(**machine).busy:
        yield Text("Other programs were running at the start, so the figures are not reliable.")
    first = sorted(model["rows"][:_MAX_ROWS], key=_order)
    for batch, rows in groupby(first, lambda row: row["batch"]):
        yield from _batch_parts(batch, list(rows), model["baseline"])
    if model["rows"]:
        yield _table(model)
    if model["memory_bytes"]:
        values = [
            Value(_NAMES.get(name, name), size / _MIB, f"{size / _MIB:,.0f}")
            for name, size in model["memory_bytes"].items()
        ]
        yield row_chart(Axis("Peak resident memory of the processes of each variant", "Variant", "MiB"), values)
    notes = [f"{_NAMES.get(each['variant'], each['variant'])} was not measured: {each['reason']}"
             for each in model["unmeasured"]]  # fmt: skip
    if notes or model["notes"]:
        yield Notes((*notes, *model["notes"]))
    if model["error"] is not None:
        yield from error_section(model["error"]).parts


def _order(row: BenchRowDocument) -> tuple[int, int]:
    return row["batch"], row["concurrency"]


def _batch_parts(batch: int, rows: Sequence[BenchRowDocument], baseline: str | None) -> Iterator[Part]:
    single = [row for row in rows if row["concurrency"] == 1]
    if single:
        yield _latency_chart(batch, single, baseline)
    if any(row["concurrency"] > 1 for row in rows):
        yield _load_plane(batch, rows)


def _latency_chart(batch: int, rows: Sequence[BenchRowDocument], baseline: str | None) -> RowChart:
    factor = f"; factors are relative to {_NAMES.get(baseline, baseline)}" if baseline else ""
    axis = Axis(
        f"Median latency at batch {batch}, one request at a time, with its 95% interval{factor}",
        "Variant",
        "ms",
        "dot",
    )
    values = [
        Value(
            _NAMES[row["variant"]] + ("" if row["ratio"] is None else f", {decimal(row['ratio']['value'])}x"),
            row["p50"]["value"],
            decimal(row["p50"]["value"]),
            (row["p50"]["low"], row["p50"]["high"]),
        )
        for row in rows
    ]
    return row_chart(axis, values)


def _load_plane(batch: int, rows: Sequence[BenchRowDocument]) -> Plane:
    """Return latency against throughput, one point per number of concurrent requests."""
    variants = dict.fromkeys(row["variant"] for row in rows if row["concurrency"] > 1)
    most = max(row["concurrency"] for row in rows)
    series = [
        Series(
            _NAMES[variant],
            tuple(
                Point(
                    row["throughput"]["value"],
                    row["p50"]["value"],
                    f"{TIMES}{row['concurrency']}" if row["concurrency"] == most else "",
                    (str(row["concurrency"]), decimal(row["throughput"]["value"]), decimal(row["p50"]["value"])),
                )
                for row in rows
                if row["variant"] == variant
            ),
            number,
        )
        for number, variant in enumerate(variants, 1)
    ]
    return plane(
        (
            f"Latency and throughput at batch {batch}, from 1 to {most} concurrent requests ({TIMES})",
            "Throughput (rows per second)",
            "Median latency (ms)",
        ),
        ("Variant", "Concurrent requests", "Rows per second", "Median latency (ms)"),
        series,
        frozenset({1, 2, 3}),
    )


def _table(model: ModelBenchDocument) -> Table:
    rows = tuple(
        (
            _NAMES[row["variant"]],
            str(row["batch"]),
            str(row["concurrency"]),
            *(_interval(row["p50"]), decimal(row["p95"]["value"]), decimal(row["p99"]["value"])),
            *(_interval(row["throughput"]), "-" if row["ratio"] is None else _interval(row["ratio"])),
        )
        for row in model["rows"]
    )
    ratio = f"Speedup over {_NAMES.get(model['baseline'] or '', model['baseline'] or 'baseline')}"
    headings = ("Variant", "Batch", "Concurrent requests", "p50 ms", "p95 ms", "p99 ms", "Rows per second", ratio)
    caption = "All measurements, with 95% intervals"
    return Table(caption, headings, rows, frozenset(range(1, len(headings))), folded=True)


def _interval(estimate: EstimateDocument) -> str:
    return f"{decimal(estimate['value'])} ({decimal(estimate['low'])} to {decimal(estimate['high'])})"
