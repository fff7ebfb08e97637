"""The server of the example plug-in, installed by pip, in the real `repogen smoke`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.plugin_environment import make_plugin_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the plug-in."""
    return make_plugin_environment(tmp_path_factory.mktemp("environment") / "venv")


def smoke(python: Path, directory: Path, server: str) -> subprocess.CompletedProcess[str]:
    """Run `repogen smoke model_repository` with a server."""
    command = [str(python), "-m", "repogen", "smoke", "model_repository", "--json", "--server", server]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_server_of_an_installed_plugin_runs_the_smoke_test(python: Path, tmp_path: Path) -> None:
    """It receives its option, starts once in explicit mode, and the report names it."""
    shutil.copytree(ROOT / "model_repository", tmp_path / "model_repository")

    result = smoke(python, tmp_path, "recording:log=starts.log")

    assert result.returncode == 0, result.stderr
    assert {model["server"] for model in json.loads(result.stdout)["models"]} == {"recording"}
    assert (tmp_path / "starts.log").read_text(encoding="utf-8") == "model_repository explicit\n"


def test_options_of_an_installed_plugin_are_validated(python: Path, tmp_path: Path) -> None:
    """Nothing starts, and the error names the option."""
    (tmp_path / "model_repository" / "m").mkdir(parents=True)

    missing, unknown = (smoke(python, tmp_path, text) for text in ("recording", "recording:starts.log,level=2"))

    assert (missing.returncode, unknown.returncode) == (2, 2)
    assert "--server recording: log is missing" in missing.stderr
    assert "--server recording: level: unknown option" in unknown.stderr
    assert "options of recording: log" in unknown.stderr


def test_unknown_server_lists_the_plugin(python: Path, tmp_path: Path) -> None:
    """The hint has the built-in servers and the plug-in's."""
    (tmp_path / "model_repository" / "m").mkdir(parents=True)

    result = smoke(python, tmp_path, "recorder")

    assert result.returncode == 2
    assert "registered servers: docker, embedded, recording, remote" in result.stderr
