"""The executor of the example plug-in, installed by pip, publishes what a local build publishes."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.file_names import ATTESTATION_FILES
from tests.integration.plugin_environment import make_plugin_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project


@pytest.mark.full
def test_executor_of_an_installed_plugin(
    tmp_path: Path, new_project: Callable[[Path], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the smoke test on the other side, and the same files."""
    monkeypatch.setenv("REPOGEN_CACHE_GB", "0")
    python = make_plugin_environment(tmp_path / "environment")
    project = new_project(tmp_path / "project")
    (tmp_path / "scratch").mkdir()
    command = [str(python), "-m", "repogen", "build", "--executor", f"copy={tmp_path / 'scratch'}"]
    run = subprocess.run(command, cwd=project.directory, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "tiny: smoke" in run.stderr
    assert "(copy)" in run.stderr
    assert "published" in run.stdout
    assert list((tmp_path / "scratch").iterdir()) == []

    local = project.run("build", "--repository", "local", "--no-report")
    assert local.returncode == 0, local.stderr
    files = [
        {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in root.glob("*/**/*")
            if path.is_file() and path.name not in ATTESTATION_FILES
        }
        for root in (project.repository, project.directory / "local")
    ]
    assert files[0] == files[1]
