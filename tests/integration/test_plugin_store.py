"""The store of the example plug-in, installed by pip: commands accept its URLs."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.integration.plugin_environment import make_plugin_environment
from tests.support.published import Publisher

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.full
def test_store_of_an_installed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish, list and verify; without the plug-in, the scheme is not known."""
    monkeypatch.setenv("EXAMPLE_BUCKETS", str(tmp_path / "buckets"))
    (tmp_path / "buckets" / "b").mkdir(parents=True)
    python = make_plugin_environment(tmp_path / "environment")
    source = Publisher(tmp_path / "local" / "repo")
    source.publish()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "repogen", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    published = run("publish", "m", "--from", str(source.repository), "--to", "dir://b/models")
    assert published.returncode == 0, published.stderr
    listed = run("versions", "--repository", "dir://b/models", "--json")
    assert json.loads(listed.stdout)["repository"] == "dir://b/models"
    assert run("verify", "dir://b/models").returncode == 0
    assert (tmp_path / "buckets" / "b" / "models" / "m" / "1" / "model.onnx").read_bytes() == b"w"
    unknown = run("verify", "other://b/models")
    assert (unknown.returncode, "no store is registered for other://" in unknown.stderr) == (2, True)
