"""Builds of models with known problems: each is reported with a hint before Triton would fail."""

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
    """Build a model of ``trap_models.py`` without a smoke test; ``lines`` are added to its spec entry."""
    shutil.copy(MODELS, directory / "trap_models.py")
    extra = f", weights: {weights}" if weights else ""
    body = textwrap.indent("\n".join([f"source: {{factory: 'trap_models.py:{factory}'{extra}}}", *lines]), "    ")
    (directory / "repogen.yaml").write_text(f"models:\n  trap:\n{body}\n", encoding="utf-8")
    spec = load_spec(directory / "repogen.yaml")
    report = build(spec, BuildOptions(server=None, dry_run=dry_run), Silent())
    return report.models[0]


def failure(report: ModelReport) -> ErrorRecord:
    """Return the error of a failed build."""
    assert report.status is Status.FAILED
    assert report.error is not None
    assert "Traceback" not in report.error.message
    return report.error


def test_training_mode_is_fixed_with_a_note(tmp_path: Path) -> None:
    """Dropout is disabled, and a note names the affected layer."""
    report = verify(tmp_path, "forgot_eval", ROWS, BATCH)
    assert (report.status, report.max_batch_size) == (Status.VERIFIED, 8)
    assert any("repogen called model.eval(); this affects 1" in note for note in report.notes)


@pytest.mark.parametrize(
    "exporter", ["auto", *(pytest.param(name, marks=pytest.mark.full) for name in ("dynamo", "torchscript"))]
)
def test_fixed_batch_size_is_rejected(tmp_path: Path, exporter: str) -> None:
    """``reshape(2, -1)`` fails with every exporter; the error has the dim or the size that fails."""
    report = verify(tmp_path, "BakedBatch", ROWS, BATCH, f"export: {{exporter: {exporter}}}")
    error = failure(report)
    assert error.exit_code == ExitCode.EXPORT
    tried = ["dynamo", "torchscript"] if exporter == "auto" else [exporter]
    assert [(attempt.exporter, attempt.ok) for attempt in report.attempts] == [(name, False) for name in tried]
    assert all(attempt.reason in error.message for attempt in report.attempts)
    assert any("repogen called model.eval()" in note for note in report.notes)
    assert {"worker", "source", "export"} <= set(report.seconds)
    subject = {"auto": "dim 'batch'", "dynamo": "dim 'batch'", "torchscript": "fails at batch=1"}[exporter]
    assert subject in error.message
    assert "reshape(2, -1)" in error.hint


@pytest.mark.full
def test_location_in_models_py_is_not_a_key_path(tmp_path: Path) -> None:
    """``models.py:3`` is a file and line, not a key below ``models``."""
    (tmp_path / "models.py").write_text("def build():\n    number = 1\n    return number / 0\n", encoding="utf-8")
    spec = "models:\n  py:\n    source: {factory: 'models.py:build'}\n    " + ROWS + "\n    " + BATCH + "\n"
    (tmp_path / "repogen.yaml").write_text(spec, encoding="utf-8")
    report = build(load_spec(tmp_path / "repogen.yaml"), BuildOptions(server=None, dry_run=True), Silent())
    assert failure(report.models[0]).where == "models.py:3"


@pytest.mark.parametrize(
    "exporter", ["auto", *(pytest.param(name, marks=pytest.mark.full) for name in ("dynamo", "torchscript"))]
)
def test_branch_on_values_is_rejected_with_its_line(tmp_path: Path, exporter: str) -> None:
    """``if x.sum() > 0`` fails with every exporter; the error has the file and line."""
    error = failure(verify(tmp_path, "Branch", ROWS, BATCH, f"export: {{exporter: {exporter}}}"))
    line = next(i for i, text in enumerate(MODELS.read_text().splitlines(), 1) if "if x.sum() > 0" in text)
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "export.data-dependent")
    assert error.where == f"trap_models.py:{line}"
    assert "torch.where" in error.hint


def test_allowed_branch_is_checked_by_parity(tmp_path: Path) -> None:
    """The spec can allow one line; the other seeds of the size sweep then detect the frozen branch."""
    line = next(i for i, text in enumerate(MODELS.read_text().splitlines(), 1) if "if x.sum() > 0" in text)
    allow = f'export: {{exporter: torchscript, allow_tracer_warnings: ["trap_models.py:{line}"]}}'
    error = failure(verify(tmp_path, "Branch", ROWS, BATCH, allow))
    assert (error.exit_code, error.code) == (ExitCode.PARITY, "parity.drift")


def test_branch_on_a_shape_is_allowed(tmp_path: Path) -> None:
    """The size sweep checks whether the traced branch is valid for all sizes."""
    report = verify(tmp_path, "BranchOnShape", ROWS, BATCH, "export: {exporter: torchscript}")
    assert (report.status, report.exporter) == (Status.VERIFIED, "torchscript")


@pytest.mark.full
def test_dependent_rows_disable_batching(tmp_path: Path) -> None:
    """``x - x.mean(0)`` gets max_batch_size 0 with auto."""
    report = verify(tmp_path, "mixes_rows", ROWS, BATCH)
    assert (report.status, report.max_batch_size) == (Status.VERIFIED, 0)
    assert "a row has a different output alone" in report.batch_reason


def test_requested_batching_of_dependent_rows_is_rejected(tmp_path: Path) -> None:
    """An explicit max_batch_size is an error with the reason."""
    error = failure(verify(tmp_path, "mixes_rows", ROWS, BATCH, "triton: {max_batch_size: 8}"))
    assert error.exit_code == ExitCode.CONFIG
    assert "a row has a different output alone" in error.message
    assert "max_batch_size: 0" in error.hint


@pytest.mark.full
def test_time_major_outputs_disable_batching(tmp_path: Path) -> None:
    """Axis 0 of an LSTM's [time, batch, …] output is not the batch."""
    inputs = "inputs: {x: {dtype: float32, shape: [batch, time, 4]}}"
    report = verify(tmp_path, "TimeMajor", inputs, "dims: {batch: {max: 8}, time: {min: 2, max: 12}}")
    assert (report.status, report.max_batch_size) == (Status.VERIFIED, 0)
    assert "axis 0 is not the batch" in report.batch_reason


@pytest.mark.full
def test_inputs_are_passed_by_name(tmp_path: Path) -> None:
    """The order of the declarations does not matter."""
    inputs = "inputs: {right: {dtype: float32, shape: [batch, 4]}, left: {dtype: float32, shape: [batch, 4]}}"
    report = verify(tmp_path, "Subtract", inputs, BATCH)
    assert report.status is Status.VERIFIED


def test_bfloat16_outputs_are_rejected(tmp_path: Path) -> None:
    """The hint has the cast that fixes it."""
    error = failure(verify(tmp_path, "bfloat16", ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "source.output-dtype")
    assert "x.float()" in error.hint


@pytest.mark.full
def test_nan_outputs_fail_parity(tmp_path: Path) -> None:
    """Equal NaN values do not count as parity."""
    error = failure(verify(tmp_path, "not_a_number", ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.PARITY, "parity.not-finite")


def test_random_operator_is_reported_with_its_line(tmp_path: Path) -> None:
    """The error is about the model, not about an exporter."""
    error = failure(verify(tmp_path, "random", ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "source.random")
    assert "models.py:" in error.message


def test_external_data_is_published_with_its_model(tmp_path: Path) -> None:
    """``external_data: true`` publishes one data file next to model.onnx."""
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
    ],
)
def test_misbehaving_factory_is_an_error_of_its_model(tmp_path: Path, factory: str, code: str, words: str) -> None:
    """If the worker exits or is killed, the build still reports an error."""
    error = failure(verify(tmp_path, factory, ROWS, BATCH))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, code)
    assert words in error.message


def test_git_lfs_pointer_is_detected(tmp_path: Path) -> None:
    """The weights file is a Git LFS pointer."""
    (tmp_path / "w.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n")
    error = failure(verify(tmp_path, "BakedBatch", ROWS, BATCH, weights="w.pt"))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "source.weights-format")
    assert error.where == f"{tmp_path / 'repogen.yaml'}:3:52"
    assert (error.message.count("Git LFS pointer"), error.hint) == (1, "download the file: git lfs pull")


def test_hanging_factory_is_stopped(tmp_path: Path) -> None:
    """The time limit applies to the factory."""
    error = failure(verify(tmp_path, "hangs", ROWS, BATCH, "limits: {timeout_seconds: 8}"))
    assert (error.exit_code, error.code) == (ExitCode.EXPORT, "worker.timeout")


@pytest.mark.full
def test_builds_are_reproducible(tmp_path: Path) -> None:
    """Builds in two directories are identical, and contain no path."""
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
