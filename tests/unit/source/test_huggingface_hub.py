"""Names on the hub: the cache, being offline, and a hub that does not answer."""

from __future__ import annotations

import json
import os
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
from repogen.source import load_source
from repogen.spec.models import ModelSpec
source = {"kind": "huggingface", "model": "team/classifier", **json.loads(sys.argv[2])}
try:
    made = load_source(ModelSpec.model_validate({"source": source}), Path(sys.argv[1]))
    print(json.dumps({"notes": made.notes, "files": len(made.files), "companions": [c.name for c in made.companions]}))
except RepogenError as error:
    print(json.dumps({"code": error.code, "message": error.message, "hint": error.hint}))
"""


def asked(root: Path, environment: dict[str, str], **source: Any) -> dict[str, Any]:
    """Load ``team/classifier`` in a process of its own, for the hub's client reads the environment when imported."""
    command = [sys.executable, "-c", PROGRAM, str(root), json.dumps(source)]
    made = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=120
    )
    answer: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return answer


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a cache that holds ``team/classifier`` as the hub's client lays it out: a snapshot of links to blobs."""
    home = tmp_path / "hub" / "models--team--classifier"
    snapshot, blobs = home / "snapshots" / COMMIT, home / "blobs"
    for directory in (snapshot, blobs, home / "refs"):
        directory.mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    made = save("text-classification", tmp_path / "made")
    (made / "tokenizer.json").write_text("{}")
    for file in made.iterdir():
        file.rename(blobs / f"blob-of-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/blob-of-{file.name}")
    return tmp_path / "hub"


@pytest.fixture
def silent_hub() -> Iterator[str]:
    """Return the address of a server that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_cached_model_is_loaded_offline(cache: Path, tmp_path: Path) -> None:
    """Links within the cache are followed; a version that is not pinned is said, and which it was."""
    answer = asked(tmp_path, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"})
    assert sorted(answer["companions"]) == ["config.json", "tokenizer.json"]
    assert any(f"team/classifier is not pinned: commit {COMMIT} was used" in note for note in answer["notes"])
    assert answer["files"] == 0


def test_a_pinned_model_is_not_remarked_on(cache: Path, tmp_path: Path) -> None:
    """A commit says what it is."""
    answer = asked(tmp_path, {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}, revision=COMMIT)
    assert not any("pinned" in note for note in answer["notes"])


def test_a_model_that_is_not_cached_offline(tmp_path: Path) -> None:
    """The hint is how to fetch it."""
    answer = asked(tmp_path, {"HF_HUB_CACHE": str(tmp_path / "empty"), "HF_HUB_OFFLINE": "1"})
    assert (answer["code"], "hf download team/classifier" in answer["hint"]) == ("source.hf-files", True)


def test_a_hub_that_refuses_connections(tmp_path: Path) -> None:
    """It is said at once."""
    environment = {"HF_HUB_CACHE": str(tmp_path / "empty"), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    answer = asked(tmp_path, environment)
    assert (answer["code"], "could not be fetched from the hub" in answer["message"]) == ("source.hf-files", True)


def test_a_hub_that_says_nothing(silent_hub: str, tmp_path: Path) -> None:
    """It is waited for, but not for long."""
    environment = {"HF_HUB_CACHE": str(tmp_path / "empty"), "HF_ENDPOINT": silent_hub, "HF_HUB_OFFLINE": "0"}
    begun = time.monotonic()
    answer = asked(tmp_path, environment)
    assert (answer["code"], time.monotonic() - begun < 60) == ("source.hf-files", True)
