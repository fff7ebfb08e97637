"""Benchmarks as text and as Markdown."""

from __future__ import annotations

from pathlib import Path

from repogen.artifacts.bench import BenchReport, BenchRow, Estimate, Machine, ModelBench, Unmeasured, Variant
from repogen.errors import BenchError
from repogen.reporting.bench_text import bench_text
from repogen.reporting.markdown import bench_markdown


def estimate(value: float) -> Estimate:
    """Return an estimate with an interval of 5% around it."""
    return Estimate(value, value * 0.95, value * 1.05)


CELLS: tuple[tuple[Variant, int], ...] = (("eager", 1), ("onnxruntime", 1), ("grpc", 1), ("grpc", 16), ("shm", 128))
ROWS = tuple(
    BenchRow(
        variant,
        batch,
        concurrency,
        p50=estimate(12.345 * batch),
        p95=estimate(123.4),
        p99=estimate(1234.5),
        throughput=estimate(33627.4),
        ratio=None if variant == "eager" else estimate(12.34),
        requests=100,
    )
    for batch in (1, 8)
    for variant, concurrency in CELLS
)
MODEL = ModelBench(
    *("resnet18", 3),
    rows=ROWS,
    unmeasured=(Unmeasured("compile", "torch.compile <failed>: no C++ compiler"),),
    baseline="eager",
    memory_bytes={"eager": 288538624, "triton": 161570816},
    server="Triton 2.51.0 (embedded)",
    notes=("batch 64: not measured",),
)
REPORT = BenchReport(
    Path("model_repository"),
    Machine("AMD EPYC", 2, 24 * 2**30, 8.1, "Linux 6.18", {"repogen": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4"}),
    rounds=5,
    seconds=0.5,
    models=(MODEL, ModelBench("broken", 0, error=BenchError("no server", "start it", code="bench.load").record)),
)


def test_text_fits_80_columns() -> None:
    """Wide numbers included."""
    lines = bench_text(REPORT, debug=False).splitlines()

    assert [line for line in lines if len(line) > 80] == []


def test_text_has_every_figure_and_every_reason() -> None:
    """Medians with intervals, ratios against the baseline, what was not measured, memory, machine and errors."""
    text = bench_text(REPORT, debug=False)

    expected = [
        "resnet18 version 3, Triton 2.51.0 (embedded)",
        "98.8 (93.8-104)",
        "x eager",
        "grpc x16",
        "12.3 (11.7-13.0)",
        "compile was not measured: torch.compile <failed>",
        "peak memory: eager 275 MB, triton 154 MB",
        "8.1 cores in use before the start",
        "the figures are not reliable",
        "5 interleaved rounds",
        "broken: error: no server",
    ]
    assert [part for part in expected if part not in text] == []


def test_markdown_has_one_table_and_escapes_texts() -> None:
    """A reason cannot become HTML on the page of a run."""
    text = bench_markdown(REPORT)

    assert "### repogen bench: 2 models, 1 failed" in text
    assert "| 8 | grpc x16 | 98.8 (93.8-104) |" in text
    assert "torch.compile &lt;failed&gt;" in text
    assert "- failed: no server" in text


def test_exit_code_is_that_of_the_failure() -> None:
    """A model that was not measured fails the command."""
    assert REPORT.exit_code == 6
    assert BenchReport(Path(), REPORT.machine, 1, 1.0, (MODEL,)).exit_code == 0
