"""The fallback chain on real models: which exporter wins, and what the report says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from repogen.spec.models import ModelSpec
from repogen.worker.job import Job
from repogen.worker.progress import BuildLog
from repogen.worker.sequence import build_model

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.built_model import BuildDiagnostics, BuiltModel

FUSED = """
import torch
from torch import nn


class Normed(nn.Module):
    \"\"\"ONNX Runtime 1.19.2 fuses MatMul, Reshape and BatchNormalization of dynamo's graph into an invalid Gemm.\"\"\"

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(y.flatten(0, 1)).reshape_as(y)
"""


def built(root: Path, code: str, entry: dict[str, Any]) -> tuple[BuiltModel, BuildDiagnostics]:
    """Build ``model.py:NAME`` in this process."""
    (root / "model.py").write_text(code)
    work = root / "work"
    work.mkdir()
    log = BuildLog(lambda *_: None)
    job = Job("m", ModelSpec.model_validate(entry), root, "24.10", work, 1)
    return build_model(job, log), log.diagnostics


@pytest.mark.filterwarnings("ignore")
def test_graph_that_the_target_cannot_load_is_exported_again(tmp_path: Path) -> None:
    """The other exporter's graph loads; before, the build ended in the smoke test."""
    inputs = {"x": {"dtype": "float32", "shape": ["batch", 3, 4]}}
    entry = {"source": {"factory": "model.py:Normed"}, "inputs": inputs, "dims": {"batch": {"max": 4}}}
    model, diagnostics = built(tmp_path, FUSED, entry)
    assert model.batch.batchable
    assert [(attempt.exporter, attempt.ok) for attempt in diagnostics.attempts] == [
        ("dynamo", False),
        ("torchscript", True),
    ]
    assert "ONNX Runtime 1.19.2 (of Triton 24.10) cannot load the model" in diagnostics.attempts[0].reason
