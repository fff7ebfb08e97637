"""A failure loses no verified work: what was verified once is published later without another export."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from .conftest import Project


def test_verified_model_is_not_exported_again(
    tmp_path: Path, new_project: Callable[[Path], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run verifies; the build publishes the same bytes; a damaged entry is exported again."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "1")
    monkeypatch.setenv("REPOGEN_CACHE_DIR", str(tmp_path / "cache"))
    project = new_project(tmp_path / "project")

    def build(*options: str) -> dict[str, Any]:
        run = project.run("build", "--no-smoke", "--json", *options)
        assert run.returncode == 0, run.stderr
        document: dict[str, Any] = json.loads(run.stdout)["models"][0]
        return document

    first = build("--dry-run")
    assert "export" in first["seconds"]
    second = build()
    assert (second["status"], second["sha256"]) == ("published", first["sha256"])
    assert "export" not in second["seconds"]
    assert second["parity"] == first["parity"]
    assert any("an earlier build" in note for note in second["notes"])

    for graph in (tmp_path / "cache").rglob("artifact-*.onnx"):
        graph.write_bytes(graph.read_bytes()[:-1])
    (project.repository / "tiny").rename(tmp_path / "moved")
    assert "export" in build()["seconds"]
