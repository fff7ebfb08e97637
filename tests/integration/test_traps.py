"""Every known trap, with a real model through the real steps: found before Triton does, with what to do."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.report import ModelReport, Status
from repogen.build.pipeline import BuildOptions, build
from repogen.errors import ErrorRecord, ExitCode
from repogen.spec.load import load_spec

MODELS = Path(__file__).parent / "trap_models.py"
ROWS = "inputs: {x: {dtype: float32, shape: [batch, 4]}}"
BATCH = "dims: {batch: {min: 1, max: 8}}"


def verify(directory: Path, factory: str, *lines: str, dry_run: bool = True, weights: str = "") -> ModelReport:
    """Build one trap without a server; ``lines`` are the model's further spec lines."""
    shutil.copy(MODELS, directory / "trap_models.py")
    loaded = f", weights: {weights}" if weights else ""
    body = textwrap.indent("\n".join([f"source: {{factory: 'trap_models.py:{factory}'{loaded}}}", *lines]), "    ")
    (directory / "repogen.yaml").write_text(f"models:\n  trap:\n{body}\n", encoding="utf-8")
    spec = load_spec(directory / "repogen.yaml")
    report = build(spec, BuildOptions(server=None, dry_run=dry_run), Silent())
    return report.models[0]


def failure(report: ModelReport) -> ErrorRecord:
    """Return the error of a build that had to fail."""
    assert report.status is Status.FAILED
    assert report.error is not None
    assert "Traceback" not in report.error.message
    return report.error


def test_a_forgotten_eval_is_mended_and_said(tmp_path: Path) -> None:
    """Dropout left in training mode is switched off, and the report says who forgot it."""
    report = verify(tmp_path, "forgot_eval", ROWS, BATCH)
    assert (report.status, report.max_batch_size) == (Status.VERIFIED, 8)
    assert "model.eval() was called; it matters for 1" in report.notes[0]


@pytest.mark.parametrize("exporter", ["auto", "dynamo", "torchscript"])
def test_a_baked_in_batch_is_an_error_that_names_the_dim(tmp_path: Path, exporter: str) -> None:
    """``reshape(2, -1)`` is refused under either exporter, with the dim or the size that fails."""
    report = verify(tmp_path, "BakedBatch", ROWS, BATCH, f"export: {{exporter: {exporter}}}")
    error = failure(report)
    assert error.exit_code == ExitCode.EXPORT
    tried = ["dynamo", "torchscript"] if exporter == "auto" else [exporter]
    assert [(rung.exporter, rung.ok) for rung in report.attempts] == [(name, False) for name in tried]
    assert all(rung.reason in error.message for rung in report.attempts)
    assert "model.eval() was called" in report.notes[0]
    assert {"worker", "source", "export"} <= set(report.seconds)
    named = {"auto": "dim 'batch'", "dynamo": "dim 'batch'", "torchscript": "fails at batch=1"}[exporter]
    assert named in error.message
    assert "reshape(2, -1)" in error.hint


def test_an_error_in_a_file_named_like_the_scaffold_s_keeps_its_place(tmp_path: Path) -> None:
    """``models.py:3`` is a place, and no key path below ``models``."""
    (tmp_path / "models.py").write_text("def build():\n    number = 1\n    return number / 0\n", encoding="utf-8")
    spec = "models:\n  py:\n    source: {factory: 'models.py:build'}\n    " + ROWS + "\n    " + BATCH + "\n"
    (tmp_path / "repogen.yaml").write_text(spec, encoding="utf-8")
    report = build(load_spec(tmp_path / "repogen.yaml"), BuildOptions(server=None, dry_run=True), Silent())
    assert failure(report.models[0]).where == "models.py:3"


@pytest.mark.parametrize("exporter", ["auto", "dynamo", "torchscript"])
def test_a_branch_on_values_is_refused_with_its_line(tmp_path: Path, exporter: str) -> None:
    """``if x.sum() > 0`` is refused by each exporter, naming file and line."""
    error = failure(verify(tmp_path, "Branch", ROWS, BATCH, f"export: {{exporter: {exporter}}}"))
    line = next(i for i, text in enumerate(MODELS.read_text().splitlines(), 1) if "if x.sum() > 0" in text)
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "export.data-dependent")
    assert error.where == f"trap_models.py:{line}"
    assert "torch.where" in error.hint


def test_an_allowed_branch_is_left_to_parity(tmp_path: Path) -> None:
    """The spec may allow one line; then the sweep's other seeds show what the frozen branch costs."""
    line = next(i for i, text in enumerate(MODELS.read_text().splitlines(), 1) if "if x.sum() > 0" in text)
    allow = f'export: {{exporter: torchscript, allow_tracer_warnings: ["trap_models.py:{line}"]}}'
    error = failure(verify(tmp_path, "Branch", ROWS, BATCH, allow))
    assert (error.exit_code, error.code) == (ExitCode.PARITY, "parity.drift")


def test_a_branch_on_a_shape_is_judged_by_the_sweep(tmp_path: Path) -> None:
    """Tracing a shape predicate is no error in itself."""
    report = verify(tmp_path, "BranchOnShape", ROWS, BATCH, "export: {exporter: torchscript}")
    assert (report.status, report.exporter) == (Status.VERIFIED, "torchscript")


def test_rows_that_mix_do_not_batch(tmp_path: Path) -> None:
    """``x - x.mean(0)`` comes out with max_batch_size 0 when left to auto."""
    report = verify(tmp_path, "mixes_rows", ROWS, BATCH)
    assert (report.status, report.max_batch_size) == (Status.VERIFIED, 0)
    assert "a row gives another output alone" in report.batch_reason


def test_batching_that_was_asked_for_is_refused_when_rows_mix(tmp_path: Path) -> None:
    """An explicit max_batch_size on such a model is an error with the reason."""
    error = failure(verify(tmp_path, "mixes_rows", ROWS, BATCH, "triton: {max_batch_size: 8}"))
    assert error.exit_code == ExitCode.CONFIG
    assert "a row gives another output alone" in error.message
    assert "max_batch_size: 0" in error.hint


def test_time_major_outputs_do_not_batch(tmp_path: Path) -> None:
    """An LSTM's [time, batch, …] answer has no batch on axis 0."""
    inputs = "inputs: {x: {dtype: float32, shape: [batch, time, 4]}}"
    report = verify(tmp_path, "TimeMajor", inputs, "dims: {batch: {max: 8}, time: {min: 2, max: 12}}")
    assert (report.status, report.max_batch_size) == (Status.VERIFIED, 0)
    assert "axis 0 is not the batch" in report.batch_reason


def test_inputs_declared_in_another_order_still_reach_their_parameters(tmp_path: Path) -> None:
    """Names, not positions, decide which input is which."""
    inputs = "inputs: {right: {dtype: float32, shape: [batch, 4]}, left: {dtype: float32, shape: [batch, 4]}}"
    report = verify(tmp_path, "Subtract", inputs, BATCH)
    assert report.status is Status.VERIFIED


def test_bfloat16_outputs_are_refused(tmp_path: Path) -> None:
    """BF16 outputs end the build at the source, with the cast that helps."""
    error = failure(verify(tmp_path, "bfloat16", ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "source.output-dtype")
    assert "x.float()" in error.hint


def test_nan_outputs_fail_parity(tmp_path: Path) -> None:
    """NaN equals NaN is no parity."""
    error = failure(verify(tmp_path, "not_a_number", ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.PARITY, "parity.not-finite")


def test_a_random_op_is_named_with_its_line(tmp_path: Path) -> None:
    """A model that differs from itself is not blamed on the exporter."""
    error = failure(verify(tmp_path, "random", ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "source.random")
    assert "models.py:" in error.message


def test_external_data_is_published_with_its_model(tmp_path: Path) -> None:
    """``external_data: true`` gives one data file beside model.onnx, recorded in the manifest."""
    inputs = "inputs: {x: {dtype: float32, shape: [batch, 512]}}"
    report = verify(tmp_path, "TooWide", inputs, BATCH, "export: {external_data: true}", dry_run=False)
    assert report.status is Status.PUBLISHED
    version = tmp_path / "model_repository" / "trap" / "1"
    assert {"model.onnx", "model.onnx.data"} <= {path.name for path in version.iterdir()}
    onnx.checker.check_model(version / "model.onnx", full_check=True)


@pytest.mark.parametrize(
    ("factory", "code", "words"),
    [
        ("exits", "source.user-code", "called sys.exit"),
        ("exits_hard", "worker.exited", "status 9"),
        ("killed", "worker.killed", "SIGKILL"),
        ("number", "source.return-type", "returned int"),
        ("missing", "source.callable-missing", "has no 'missing'"),
    ],
)
def test_a_factory_that_misbehaves_is_that_models_error(tmp_path: Path, factory: str, code: str, words: str) -> None:
    """A worker's end becomes an error value, and the build goes on to its report."""
    error = failure(verify(tmp_path, factory, ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, code)
    assert words in error.message


def test_weights_that_were_never_fetched_are_recognized(tmp_path: Path) -> None:
    """A git-LFS pointer in the place of a checkpoint."""
    (tmp_path / "w.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n")
    error = failure(verify(tmp_path, "BakedBatch", ROWS, BATCH, weights="w.pt"))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "source.weights-format")
    assert error.where == f"{tmp_path / 'repogen.yaml'}:3:52"
    assert (error.message.count("git-LFS pointer"), error.hint) == (1, "fetch them: git lfs pull")


def test_a_factory_that_hangs_is_stopped(tmp_path: Path) -> None:
    """The time limit ends it."""
    error = failure(verify(tmp_path, "hangs", ROWS, BATCH, "limits: {timeout_seconds: 8}"))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "worker.timeout")


def test_the_same_input_gives_the_same_bytes_and_no_trace_of_the_machine(tmp_path: Path) -> None:
    """Two builds in two directories agree to the byte, and neither holds a path."""
    inputs = "inputs: {x: {dtype: float32, shape: [batch, 512]}}"
    digests = []
    for name in ("one", "two"):
        directory = tmp_path / name
        directory.mkdir()
        report = verify(directory, "TooWide", inputs, BATCH, dry_run=False)
        digests.append(replace(report).sha256)
        content = (directory / "model_repository" / "trap" / "1" / "model.onnx").read_bytes()
        assert str(tmp_path).encode() not in content
        assert b"trap_models" not in content
    assert digests[0] == digests[1] != ""
