"""Loading a spec imports neither the frameworks nor gRPC."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
    triton: {%s}
"""
LOAD = """
import sys
from pathlib import Path
from repogen.spec.load import load_spec
load_spec(Path("repogen.yaml"))
slow = {"grpc", "torch", "onnx", "onnxruntime", "mlflow", "numpy", "jinja2", "google.protobuf"}
print(*sorted(slow & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("triton", "modules"),
    [("", ""), ("max_batch_size: 4", ""), ("dynamic_batching: {preferred_batch_size: [4]}", "google.protobuf")],
)
def test_loading_a_spec_imports_only_what_its_rules_need(folder: Path, triton: str, modules: str) -> None:
    """The rules for config.pbtxt need protobuf, which is imported only if there is a section to check."""
    (folder / "repogen.yaml").write_text(SPEC % triton)
    result = subprocess.run([sys.executable, "-c", LOAD], cwd=folder, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == modules
