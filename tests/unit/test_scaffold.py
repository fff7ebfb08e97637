"""``repogen init`` and the workflow that it writes for GitHub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from repogen import __version__
from repogen.errors import SpecError
from repogen.scaffold import scaffold


def test_the_workflow_goes_to_the_top_of_the_repository(tmp_path: Path) -> None:
    """GitHub looks nowhere else; the spec is named from there, whatever its directory is called."""
    (tmp_path / ".git").mkdir()
    directory = tmp_path / 'it\'s: a "model"'
    written = [
        path.resolve().relative_to(tmp_path).as_posix() for path in scaffold(directory, force=False, github=True)
    ]
    assert written == [f"{directory.name}/models.py", f"{directory.name}/repogen.yaml", ".github/workflows/repogen.yml"]
    job = _workflow(tmp_path)["jobs"]["models"]
    assert job["uses"] == f"triton-repogen/repogen/.github/workflows/repogen.yml@v{__version__}"
    assert job["with"]["spec"] == f"{directory.name}/repogen.yaml"


def test_a_spec_that_is_there_is_kept(tmp_path: Path) -> None:
    """Beside a spec only the workflow is written, and `force` means the workflow."""
    (tmp_path / "repogen.yaml").write_text("mine", encoding="utf-8")
    (tmp_path / "models.py").write_text("mine", encoding="utf-8")
    for force in (False, True):
        written = scaffold(tmp_path, force=force, github=True)
        assert [path.name for path in written] == ["repogen.yml"]
    assert (tmp_path / "repogen.yaml").read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "models.py").read_text(encoding="utf-8") == "mine"


def test_a_workflow_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """Without force nothing at all is written; with it, all."""
    workflow = tmp_path / ".github" / "workflows" / "repogen.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("mine", encoding="utf-8")
    with pytest.raises(SpecError, match=r"already has \.github/workflows/repogen\.yml; nothing was written"):
        scaffold(tmp_path, force=False, github=True)
    assert workflow.read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "repogen.yaml").exists()
    scaffold(tmp_path, force=True, github=True)
    assert _workflow(tmp_path)["name"] == "models"


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """The workflow that users get is held to what the project's own are."""
    (tmp_path / ".git").mkdir()
    (workflow,) = (path for path in scaffold(tmp_path, force=False, github=True) if path.suffix == ".yml")
    command = [str(Path(sys.executable).parent / "actionlint"), str(workflow.resolve())]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "")


def test_without_github_there_is_no_workflow(tmp_path: Path) -> None:
    """Only what was asked for."""
    assert [path.name for path in scaffold(tmp_path, force=False)] == ["models.py", "repogen.yaml"]
    assert not (tmp_path / ".github").exists()


def _workflow(root: Path) -> Any:
    text = (root / ".github" / "workflows" / "repogen.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)
