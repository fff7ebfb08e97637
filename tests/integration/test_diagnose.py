"""`repogen diagnose`: every exporter is tried, and the first operator that differs is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Project

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_operator"
FROZEN = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        exporting = torch.jit.is_tracing() or torch.compiler.is_compiling()
        return self.linear(x) * (2.0 if exporting else float(x.shape[0]))


def build():
    torch.manual_seed(0)
    return Net().eval()
"""


@pytest.mark.full
def test_custom_operator_with_translations(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """The example can be exported with both exporters."""
    project = new_project(tmp_path)
    for name in ("models.py", "ops.py", "repogen.yaml"):
        shutil.copy(EXAMPLE / name, project.directory / name)
    process = project.run("diagnose", "cubes", "--json")
    (model,) = json.loads(process.stdout)["models"]
    assert [(attempt["exporter"], attempt["ok"]) for attempt in model["exporters"]] == [
        ("dynamo", True),
        ("torchscript", True),
    ]
    assert process.returncode == 0
    assert project.published() == {}


@pytest.mark.full
def test_first_difference_is_reported(tmp_path: Path, new_project: Callable[[Path], Project]) -> None:
    """A multiplication by a frozen batch size, with its line; the exit code is that of parity."""
    project = new_project(tmp_path)
    (project.directory / "models.py").write_text(FROZEN, encoding="utf-8")
    process = project.run("diagnose", "tiny", "--json")
    (model,) = json.loads(process.stdout)["models"]
    assert [attempt["ok"] for attempt in model["exporters"]] == [False]
    assert "aten.mul.Tensor (models.py:11) is the first to differ" in model["exporters"][0]["reason"]
    assert (process.returncode, model["error"]["code"]) == (4, "parity.drift")
