"""ONNX Runtime sessions of repogen."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime

from repogen.onnx_graph.session import open_session
from tests.support import graphs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_telemetry_is_off_before_a_session_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session of repogen's processes is opened by this function."""
    events: list[str] = []
    create, disable = onnxruntime.InferenceSession, onnxruntime.disable_telemetry_events

    def disabled() -> None:
        events.append("disabled")
        disable()

    def created(*arguments: Any, **options: Any) -> Any:
        events.append("created")
        return create(*arguments, **options)

    monkeypatch.setattr(onnxruntime, "disable_telemetry_events", disabled)
    monkeypatch.setattr(onnxruntime, "InferenceSession", created)
    onnx.save_model(graphs.matmul(), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx", onnxruntime.SessionOptions())
    assert events == ["disabled", "created"]
    assert session.run(["y"], {"x": np.zeros((2, 4), np.float32)})[0].shape == (2, 3)


def test_import_writes_no_file(tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would write ``.ses`` into the directory of temporary files, also through a link."""
    private = tmp_path / "private"
    private.write_text("mine", encoding="utf-8")
    (tmp_path / ".ses").symlink_to(private)
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    program = [sys.executable, "-c", "import repogen, onnxruntime"]
    subprocess.run(program, env={**environment, "TMPDIR": str(tmp_path)}, check=True)
    assert private.read_text(encoding="utf-8") == "mine"
