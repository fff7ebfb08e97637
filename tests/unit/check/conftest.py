"""A small repository, and its findings in short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from repogen.api.check import check
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one good model of one version."""
    add_model(tmp_path / "repository", "m", CONFIG)
    return tmp_path / "repository"


def add_model(repository: Path, name: str, config: str, *versions: int) -> Path:
    """Add a model whose graph is ``matmul``; return its directory."""
    for version in versions or (1,):
        directory = repository / name / str(version)
        directory.mkdir(parents=True)
        onnx.save_model(graphs.matmul(), directory / "model.onnx")
    (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    return repository / name


def findings_in(path: Path, release: str = "24.10") -> list[tuple[str, str, int]]:
    """Return code, file name and line of each finding."""
    findings = check(path, target=release)
    return [(finding.code, finding.path.removeprefix(f"{path}").lstrip("/"), finding.line) for finding in findings]
