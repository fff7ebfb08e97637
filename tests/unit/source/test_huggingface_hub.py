"""Models on the Hugging Face Hub: the cache, offline mode, and a Hub that does not respond."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from .checkpoints import save

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROGRAM = """
import json, sys, warnings
from pathlib import Path
from repogen.errors import RepogenError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec
source = {"kind": "huggingface", "model": "team/classifier", **json.loads(sys.argv[2])}
try:
    model = load_source(ModelSpec.model_validate({"source": source}), Path(sys.argv[1]))
    companions = [companion.name for companion in model.companions]
    print(json.dumps({"notes": model.notes, "files": len(model.files), "companions": companions}))
except RepogenError as error:
    print(json.dumps({"code": error.code, "message": error.message, "hint": error.hint}))
"""


def load_in_process(root: Path, environment: dict[str, str], **source: Any) -> dict[str, Any]:
    """Load ``team/classifier`` in a new process, because the Hub client reads the environment on import."""
    command = [sys.executable, "-c", PROGRAM, str(root), json.dumps(source)]
    process = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=120
    )
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a cache that contains ``team/classifier`` in the Hub client's layout: a snapshot of links to blobs."""
    home = tmp_path / "hub" / "models--team--classifier"
    snapshot, blobs = home / "snapshots" / COMMIT, home / "blobs"
    for directory in (snapshot, blobs, home / "refs"):
        directory.mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    checkpoint = save("text-classification", tmp_path / "checkpoint")
    (checkpoint / "tokenizer.json").write_text("{}")
    for file in checkpoint.iterdir():
        file.rename(blobs / f"blob-of-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/blob-of-{file.name}")
    return tmp_path / "hub"


@pytest.fixture
def silent_hub() -> Iterator[str]:
    """Return the address of a server that accepts connections and never responds."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_cached_model_is_loaded_offline(cache: Path, tmp_path: Path) -> None:
    """Links within the cache are followed; a note gives the commit of a model that is not pinned."""
    result = load_in_process(tmp_path, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"})
    assert sorted(result["companions"]) == ["config.json", "tokenizer.json"]
    assert any(f"team/classifier is not pinned: commit {COMMIT} was used" in note for note in result["notes"])
    assert result["files"] == 0


@pytest.mark.parametrize("link", [f"snapshots/{COMMIT}", "snapshots"])
def test_snapshot_behind_a_link_of_another_user(cache: Path, tmp_path: Path, link: str) -> None:
    """It could be a private model of this user; a shared cache may belong to another user."""
    path = next(cache.glob("models--*")) / link
    path.rename(tmp_path / "private")
    path.symlink_to(tmp_path / "private")
    os.chown(path, 65534, -1, follow_symlinks=False)
    result = load_in_process(tmp_path, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"})
    assert result["code"] == "foreign-link"


def test_directory_of_another_user_with_the_name_of_a_model(cache: Path, tmp_path: Path) -> None:
    """In a directory such as /tmp, it is not used instead of the model on the Hub."""
    tmp_path.chmod(0o1777)
    directory = tmp_path / "team" / "classifier"
    directory.parent.mkdir()
    shutil.copytree(next(cache.glob("models--*/snapshots/*")), directory)
    os.chown(directory.parent, 65534, -1)
    result = load_in_process(tmp_path, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"})
    assert result["code"] == "working-directory.foreign"
    assert "another user created the directory 'team/classifier'" in result["message"]


@pytest.mark.full
def test_pinned_model_has_no_note(cache: Path, tmp_path: Path) -> None:
    """A commit identifies the model."""
    result = load_in_process(tmp_path, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}, revision=COMMIT)
    assert not any("pinned" in note for note in result["notes"])


def test_uncached_model_offline(tmp_path: Path) -> None:
    """The hint is the download command."""
    result = load_in_process(tmp_path, {"HF_HUB_CACHE": str(tmp_path / "empty"), "HF_HUB_OFFLINE": "1"})
    assert (result["code"], "hf download team/classifier" in result["hint"]) == ("source.hf-files", True)


def test_hub_refuses_connections(tmp_path: Path) -> None:
    """The error is immediate."""
    environment = {"HF_HUB_CACHE": str(tmp_path / "empty"), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    result = load_in_process(tmp_path, environment)
    assert (result["code"], "could not be downloaded from the Hub" in result["message"]) == ("source.hf-files", True)


@pytest.mark.full
def test_hub_never_responds(silent_hub: str, tmp_path: Path) -> None:
    """The wait has a timeout."""
    environment = {"HF_HUB_CACHE": str(tmp_path / "empty"), "HF_ENDPOINT": silent_hub, "HF_HUB_OFFLINE": "0"}
    start = time.monotonic()
    result = load_in_process(tmp_path, environment)
    assert (result["code"], time.monotonic() - start < 60) == ("source.hf-files", True)
