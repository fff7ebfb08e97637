"""The output formats of `repogen check`, and its findings compared with a real Triton on the same files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.api.check import check
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.process import load_failures
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets
from tests.unit.check.conftest import CONFIG, add_model

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLE = Path(__file__).parents[2] / "model_repository"
HEAVY = ("torch", "mlflow", "onnxruntime", "transformers", "onnxsim", "onnx_ir")


def run(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "repogen", "check", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Return a directory with a repository of one warning and one error."""
    group = 'instance_group [ { name: "g" }, { name: "g" } ]\n'
    add_model(tmp_path / "model_repository", "m", CONFIG.replace("dims: [ 3 ]", "dims: [ 4 ]") + group)
    return tmp_path


def test_valid_repository_is_exit_code_0(tmp_path: Path) -> None:
    """The committed repository, from another working directory."""
    process = run(str(EXAMPLE), cwd=tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (0, "checked 1 model: no findings\n", "")


def test_findings_have_position_and_correction(bad: Path) -> None:
    """Errors are exit code 1."""
    process = run(cwd=bad)
    assert process.returncode == 1
    assert process.stdout.splitlines() == [
        "model_repository/m/config.pbtxt:5:49: error RG207 output 'y' has dim 4 at axis 0, but the graph has 3",
        "  hint: write dims: [ 3 ]",
        "  + dims: [ 3 ]",
        "model_repository/m/config.pbtxt:6:35: warning RG112 several instance groups are named 'g'",
        "  hint: use a unique name for each group",
        "checked 1 model: 1 error, 1 warning; run `repogen explain CODE` for details",
        "1 can be fixed with `--fix`; `--diff` shows how",
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--ignore", "RG207"), 0),
        (("--ignore", "RG207", "--strict"), 1),
        (("--select", "RG112,RG101"), 0),
        (("--select", "RG2", "--ignore", "RG206"), 1),
        (("--select", "RG9"), 2),
        (("--target", "1.2"), 2),
        (("absent",), 2),
        (("empty",), 2),
        (("model_repository", "empty"), 2),
    ],
)
def test_exit_codes(bad: Path, arguments: Sequence[str], code: int) -> None:
    """Warnings count with --strict; an invalid option, and a path without a model, are exit code 2."""
    (bad / "empty").mkdir()
    assert run(*arguments, cwd=bad).returncode == code


def test_json_document(bad: Path) -> None:
    """It contains everything that the text has."""
    document = json.loads(run("--format", "json", cwd=bad).stdout)
    assert document["schema"] == 1
    assert (document["checked_models"], document["errors"], document["warnings"]) == (1, 1, 1)
    assert document["findings"][0] == {
        "code": "RG207",
        "severity": "error",
        "path": "model_repository/m/config.pbtxt",
        "line": 5,
        "column": 49,
        "field": "output[0].dims[0]",
        "message": "output 'y' has dim 4 at axis 0, but the graph has 3",
        "hint": "write dims: [ 3 ]",
        "fix": "dims: [ 3 ]",
        "applicability": "safe",
    }
    assert document["statistics"][0] == {"code": "RG112", "count": 1, "safe_fixes": 0, "unsafe_fixes": 0}


def test_annotations_for_github(bad: Path) -> None:
    """One command per finding, on its line of the file in the workspace."""
    process = run("--format", "github", cwd=bad, environment={"GITHUB_WORKSPACE": str(bad), "PATH": "/usr/bin"})
    first, second = process.stdout.splitlines()
    assert first.startswith("::error file=model_repository/m/config.pbtxt,line=5,col=49,title=RG207::output 'y'")
    assert second.startswith("::warning file=model_repository/m/config.pbtxt,line=6,col=35,title=RG112::")


def test_large_packages_are_not_imported() -> None:
    """A check needs no package that trains or serves models."""
    code = f"import sys, repogen; repogen.check({str(EXAMPLE)!r}); print([n for n in {HEAVY!r} if n in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


@pytest.mark.parametrize(
    ("change", "loads"),
    [
        (("dims: [ 3 ]", "dims: [ 4 ]"), False),
        (("max_batch_size: 8", "max_batch_size: -1"), False),
        (("max_batch_size: 8", "max_batch_size: 8\ndynamic_batching { preferred_batch_size: [ 9 ] }"), False),
        (("max_batch_size: 8", "max_batch_size: 8\nmodel_metrics { }"), False),
        (("max_batch_size: 8", "max_batch_size: +8"), False),
        (("max_batch_size: 8", "max_batch_size: 8\nversion_policy { specific { versions: [ 7 ] } }"), False),
        (("max_batch_size: 8", 'max_batch_size: 8\nplatform: "onnxruntime_onnx"'), True),
        (("max_batch_size: 8", "max_batch_size: 8\noptimization { graph { level: 99 } }"), True),
        (("max_batch_size: 8", "max_batch_size: 8 # comment"), True),
    ],
)
def test_the_real_server_agrees(tmp_path: Path, change: tuple[str, str], loads: bool) -> None:  # noqa: FBT001 - the verdict
    """An error is what tritonserver does not load; benchmarks/check_agreement.py compares a thousand more cases."""
    repository = tmp_path / "repository"
    add_model(repository, "m", CONFIG.replace(*change))
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    assert loads is not any(finding.severity == "error" for finding in check(repository))
    with embedded.running(repository, ControlMode.NONE) as running:
        assert loads is not bool(load_failures(running.log_tail(1000)))
