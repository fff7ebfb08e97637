"""A failure loses no verified work: what was verified once is published later without another export."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from repogen.resources import templates_dir
from repogen.serving.install import cache_root
from repogen.targets import newest_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from .conftest import Project


def test_verified_model_is_not_exported_again(
    tmp_path: Path, new_project: Callable[[Path], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run verifies; the build publishes the same bytes; a damaged entry is exported again.

    An edit of ``triton:`` needs no export, and neither does a newer release that the graph meets.
    """
    monkeypatch.setenv("REPOGEN_CACHE_GB", "1")
    installed = cache_root()  # has the ONNX Runtime of each target
    monkeypatch.setenv("REPOGEN_CACHE_DIR", str(tmp_path / "cache"))
    cache_root().parent.mkdir(parents=True)
    cache_root().symlink_to(installed)
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

    project.edit("count: 1", "count: 2")
    third = build()
    assert (third["status"], third["version"]) == ("published", 2)
    assert "export" not in third["seconds"]
    assert "count: 2" in (project.repository / "tiny" / "config.pbtxt").read_text()

    templates = project.directory / "templates"
    shutil.copytree(templates_dir(), templates)
    with (templates / "config.pbtxt.j2").open("a") as template:
        template.write('parameters { key: "owner" value { string_value: "me" } }\n')
    project.edit("models:", "templates: templates\nmodels:")
    rendered = build()
    assert "export" not in rendered["seconds"]
    assert "owner" in (project.repository / "tiny" / "config.pbtxt").read_text()

    newest = newest_target().release
    project.edit("models:", f"target: {{triton: '{newest}'}}\nmodels:")
    fourth = build()
    assert fourth["version"] == 4
    assert "export" not in fourth["seconds"]
    assert any(newest in note for note in fourth["notes"])

    for graph in (tmp_path / "cache" / "verified").rglob("artifact-*.onnx"):
        graph.write_bytes(graph.read_bytes()[:-1])
    (project.repository / "tiny").rename(tmp_path / "moved")
    assert "export" in build()["seconds"]
