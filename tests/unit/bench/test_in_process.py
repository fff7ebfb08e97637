"""The variants that run in process: what they report if another user replaces a file while it is loaded."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from repogen.bench import in_process
from repogen.bench.in_process import InProcess, Subject
from repogen.errors import BenchError
from repogen.spec.load import load_spec

if TYPE_CHECKING:
    from pathlib import Path

SPEC = """\
repository: model_repository
target: {triton: "24.10"}
models:
  m:
    source: {factory: "models.py:build", weights: shared/w.safetensors}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    dims: {batch: {max: 8}}
"""


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_weights_that_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool, is_replaced: bool
) -> None:
    """An error or a note of the process could quote a private file; the report is readable by other users."""
    (tmp_path / "repogen.yaml").write_text(SPEC)
    (tmp_path / "models.py").touch()
    weights = tmp_path / "shared" / "w.safetensors"
    weights.parent.mkdir()
    weights.touch()
    spec = load_spec(tmp_path / "repogen.yaml")
    weights.parent.chmod(0o777)
    served = Mock(version=1)
    served.model.name, served.model.directory = "m", tmp_path
    subject = Subject(served, Mock(graph={}), (), spec, Mock(), tmp_path / "work")
    subject.work_dir.mkdir()

    def wait(_: float) -> Any:
        if is_replaced:
            weights.rename(weights.with_name("moved"))
            weights.with_name("moved").rename(weights)
        if fails:
            raise BenchError("unexpected: SECRET.weight")
        return Mock(version="1", note="SECRET")

    monkeypatch.setattr(in_process, "TorchJob", Mock())
    monkeypatch.setattr(in_process, "start_torch", lambda _: nullcontext(Mock(wait=wait)))
    monkeypatch.setattr(in_process, "require_installed", Mock())
    monkeypatch.setattr(InProcess, "_onnxruntime", Mock(side_effect=BenchError("not here")))
    with InProcess(subject) as running:
        reported = f"{running.notes} {running.unmeasured}"
        assert ("SECRET" in reported) is not is_replaced
        assert ("changed while it was loaded" in reported) is is_replaced
        assert bool(running.variants) is not (fails or is_replaced)
