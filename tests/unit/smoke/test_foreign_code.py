"""A model with code that repogen did not build is in the reports of `smoke` and `serve`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import Endpoint
from repogen.serving import commands
from repogen.smoke.preparation import prepare_published
from repogen.smoke.repository import smoke_served

if TYPE_CHECKING:
    from pathlib import Path

SERVER: Any = SimpleNamespace(endpoint=Endpoint("", "", "", "docker", "2.51.0", "", sees_files=False, has_gpu=False))


class Notes(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        """Start without notes."""
        self.notes: list[tuple[str, str]] = []

    def note(self, model: str, text: str) -> None:
        """Keep a note."""
        self.notes.append((model, text))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a Python, a TorchScript and an ONNX model, none of which repogen built."""
    for name, backend in {"code": "python", "script": "pytorch", "graph": "onnxruntime"}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(f'backend: "{backend}"', encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("code", "not examined: Triton runs its model.py"),
        ("script", "not examined: Triton's backend 'pytorch' may run code in its files"),
        ("graph", ""),
    ],
)
def test_smoke(repository: Path, name: str, detail: str) -> None:
    """A warning, next to the failed check that repogen did not build the model."""
    client: Any = None
    (report,) = smoke_served(SERVER, client, prepare_published(SERVER.endpoint, repository / name))
    warnings = [(check.name, check.detail) for check in report.checks if check.warning]
    assert warnings == ([("code", detail)] if detail else [])
    assert [check.name for check in report.checks if not check.passed] == ["built by repogen"]


def test_serve(repository: Path) -> None:
    """A note, before the server starts; a model that repogen built has none, and neither has one that is not loaded."""
    (repository / "built" / "1").mkdir(parents=True)
    (repository / "built" / "1" / "manifest.json").touch()
    (repository / "built" / "config.pbtxt").write_text('backend: "python"', encoding="utf-8")
    (repository / "refused" / "1").mkdir(parents=True)
    (repository / "refused" / "config.pbtxt").write_text('backend: "../x"', encoding="utf-8")
    progress = Notes()
    commands._note_code(repository, (), progress)  # noqa: SLF001 - the part before the server starts
    end = ", which repogen did not build: serve it only if you trust it"
    assert progress.notes == [
        ("code", f"Triton runs its model.py{end}"),
        ("script", f"Triton's backend 'pytorch' may run code in its files{end}"),
    ]
