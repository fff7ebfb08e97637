"""A command on a store is killed after each of its writes: the old or the new state is served, and a rerun completes.

The states are read by another process, as a freshly started Triton would read them: by config.pbtxt and the files of
the versions that it names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.files.url import location
from repogen.repository.digest import sha256_bytes
from repogen.repository.manifest import manifest_from_json
from repogen.stores.open import open_store
from repogen.triton_config.text.parse import parse
from tests.unit.stores.killed_commit import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.published import Publisher

PROGRAM = Path(__file__).with_name("killed_commit.py")
MAX_WRITES = 60
LARGE = 11 * 2**20


def killed(job: Mapping[str, object], at: int) -> bool:
    """Run a command that is killed after a write; return False if it has fewer writes."""
    command = [sys.executable, str(PROGRAM), json.dumps({**job, "at": at})]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert process.returncode in {0, -signal.SIGKILL}, process.stderr
    return process.returncode != 0


def served_content(url: str) -> dict[int, bytes]:
    """Return model.onnx of the versions that Triton would serve; every file of them matches its manifest."""
    place = location(url)
    store, key = open_store(place), place.key  # type: ignore[arg-type, attr-defined]
    try:
        config = store.read(f"{key}/m/config.pbtxt", 10**6).decode()
    except FileNotFoundError:
        return {}
    contents = {}
    for number in parse(config, "config.pbtxt").version_policy.specific.versions:
        folder = f"{key}/m/{number}"
        manifest = manifest_from_json(store.read(f"{folder}/manifest.json", 10**6).decode())
        for record in manifest.files:
            assert sha256_bytes(store.read(f"{folder}/{record.path}", 2 * LARGE)) == record.sha256
        contents[number] = store.read(f"{folder}/model.onnx", 2 * LARGE)
    return contents


def require_readable(url: str) -> None:
    """Require that reading commands work, and that no version is damaged."""
    assert repogen.verify(url).findings == ()


@pytest.mark.parametrize("url", ["dir", pytest.param("s3", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize(
    "command",
    ["next", *(pytest.param(name, marks=pytest.mark.full) for name in ("first", "breaking", "rollback", "prune"))],
)
def test_killed_at_each_write(url: str, command: str, publisher: Publisher) -> None:
    """Each write is a case; each case begins from the same state under another prefix."""
    size = LARGE if url.startswith("s3:") else 3
    for at in range(MAX_WRITES):
        target = f"{url}-{command}-{at}"
        job = prepare(publisher, target, command, size)
        old = served_content(target)
        if not killed(job, at):
            assert at > 0
            return
        content = served_content(target)
        run(dict(job))
        new = served_content(target)
        assert content in (old, new), f"{command}: killed after write {at}"
        assert new == expected(command, size)
        require_readable(target)
        assert not [each for each in repogen_keys(target) if ".claim." in each]
    raise AssertionError(f"more than {MAX_WRITES} writes")


def prepare(publisher: Publisher, url: str, command: str, size: int) -> dict[str, object]:
    """Publish what a command begins with, and return the command."""
    source = publisher.repository.with_name(f"source-{url.rpartition('/')[2]}")
    local = type(publisher)(source)
    before = {"first": 0, "next": 1, "breaking": 1, "rollback": 2, "prune": 3}[command]
    for number in range(before):
        local.publish(weights=bytes([number]) * size)
        repogen.publish("m", source=source, target=url)
    is_publish = command in {"first", "next", "breaking"}
    if is_publish:
        local.publish(weights=bytes([before]) * size, shape=("batch", 5 if command == "breaking" else 4))
    return {"url": url, "source": str(source), "command": "publish" if is_publish else command}


def expected(command: str, size: int) -> dict[int, bytes]:
    """Return what is served after a command."""
    number = {"first": 1, "next": 2, "breaking": 2, "rollback": 1, "prune": 3}[command]
    return {number: bytes([number - 1]) * size}


def repogen_keys(url: str) -> list[str]:
    """Return the keys of a repository."""
    place = location(url)
    return [each.key for each in open_store(place).list(f"{place.key}/")]  # type: ignore[arg-type, attr-defined]
