"""Altered entries of a registry in a real `mlflow server`: each fails by itself, and the others are synced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from mlflow import MlflowClient

from repogen.repository.manifest import read_manifest
from repogen.serving.process import PortOptions, choose_ports
from tests.support.simulated_registry import CONFIG, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


DIGITS = "9" * 400
ENVIRONMENT = CONFIG + 'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "/tmp/env" }} }}'


def replace_in_manifest(version: Path, old: str, new: str) -> None:
    """Edit the text of a manifest; it must contain ``old``."""
    path = version / "manifest.json"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


# What is done to the files of a model after it was registered.
ALTERED: dict[str, Callable[[Path], Any]] = {
    "no-json": lambda version: (version / "manifest.json").write_bytes(b"\xff{"),
    "nested": lambda version: (version / "manifest.json").write_text("[" * 100_000, encoding="utf-8"),
    "digits": lambda version: replace_in_manifest(version, '"max_batch_size": 8', f'"max_batch_size": {DIGITS}'),
    "escapes": lambda version: replace_in_manifest(version, '"path": "model.onnx"', '"path": "../../../model.onnx"'),
    "link": lambda version: replace_in_manifest(version, '"path": "model.onnx"', '"path": "/etc/passwd"'),
    "no-manifest": lambda version: (version / "manifest.json").unlink(),
    "weights": lambda version: (version / "model.onnx").write_bytes(b"other"),
    "config": lambda version: (version / "config.pbtxt").write_text("{", encoding="utf-8"),
    "missing": lambda version: (version / "model.onnx").unlink(),
}
# Tags of a version that differ from its files.
TAGGED = {
    "content": {"repogen.content_sha256": "0" * 64},
    "content-digits": {"repogen.content_sha256": DIGITS},
    "content-path": {"repogen.content_sha256": "../" * 20},
}
GOOD = {
    "a-good": {},
    "z-good": {"repogen.triton.version": DIGITS, "repogen.sha256": "x", "repogen.repository": "\x1b[2J"},
}


@contextmanager
def mlflow_server(home: Path) -> Iterator[str]:
    """Run a real server with a sqlite database; yield its address."""
    port = choose_ports(PortOptions()).http
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{home}/mlflow.db", "--artifacts-destination", str(home / "artifacts")),
    ]
    settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env=outside | settings, cwd=home, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and server.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60).close()
            except OSError:
                time.sleep(0.2)
            else:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


class Registry:
    """Registers versions as a build does, and lets a test alter them."""

    def __init__(self, uri: str, root: Path) -> None:
        """Connect to a server."""
        self._client = MlflowClient(uri, uri)
        self._experiment = self._client.create_experiment("hostile")
        self._root = root

    def add(self, name: str, tags: dict[str, str], alter: Callable[[Path], Any], template: str = CONFIG) -> None:
        """Register version 1 of a model and point the alias ``champion`` to it."""
        version = version_of_bytes(self._root / name, name, name.encode(), template=template)
        content = read_manifest(version).content_sha256
        alter(version)
        run = self._client.create_run(self._experiment).info
        self._client.log_artifacts(run.run_id, str(version), "model")
        self._client.create_registered_model(name)
        published = {"repogen.state": "published", "repogen.content_sha256": content, "repogen.triton.version": "1"}
        source = f"{run.artifact_uri}/model"
        self._client.create_model_version(name, source, run.run_id, tags=published | tags, await_creation_for=0)
        self._client.set_registered_model_alias(name, "champion", "1")


@pytest.mark.full
def test_each_bad_entry_fails_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrupt manifest, numbers of 400 digits, wrong digests, paths that lead out, and code."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with mlflow_server(tmp_path) as uri:
        registry = Registry(uri, tmp_path / "built")
        for name, alter in ALTERED.items():
            registry.add(name, {}, alter)
        for name, tags in {**TAGGED, **GOOD}.items():
            registry.add(name, tags, lambda _: None)
        registry.add("code", {}, lambda _: None, ENVIRONMENT)
        registry.add("x$(touch marker)y", {}, lambda _: None)
        command = ["sync", "--alias", "champion", "--repository", "repository", "--tracking-uri", uri, "--json"]
        process = subprocess.run(
            [sys.executable, "-m", "repogen", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    report = json.loads(process.stdout)
    actions = {row["name"]: row["action"] for row in report["models"]}
    errors = {row["name"]: row["error"]["code"] for row in report["models"] if row["error"] is not None}
    assert {name for name, action in actions.items() if action == "published"} == set(GOOD)
    assert set(errors) == {*ALTERED, *TAGGED, "code", "x$(touch marker)y"}
    assert "bug" not in errors.values()
    assert process.returncode == 5  # that of the earliest step, for the model with code
    served = {path.name for path in (tmp_path / "repository").iterdir() if path.is_dir()}
    assert served == set(GOOD)
    assert "Traceback" not in process.stderr
