"""Builds on a machine that cannot run the embedded Triton; `repogen.machine` is the only place that knows the system.

It is replaced in every process of these builds. Everything else, such as the server and the files, is real.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

_MACOS = """\
import repogen.machine

repogen.machine.system_and_processor = lambda: ("Darwin", "arm64")
"""


@pytest.fixture
def macos(tmp_path: Path, new_project: Callable[[Path], Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project in which `repogen` runs on macOS, with Apple's processor."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_MACOS, encoding="utf-8")
    paths = (str(tmp_path / "site"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return new_project(tmp_path / "project")


def test_build_says_what_to_do(macos: Project) -> None:
    """Before any work; `doctor` says the same, and is not a failure."""
    build = macos.run("build")
    assert build.returncode == 6
    assert "the embedded Triton cannot run here: Darwin on arm64" in build.stderr
    assert "use another --server, such as docker, or HOST:PORT of a running Triton server" in build.stderr
    assert "--no-smoke publishes without a smoke test" in build.stderr
    assert "export" not in build.stderr
    doctor = macos.run("doctor")
    assert doctor.returncode == 0
    assert "not available on Darwin on arm64" in doctor.stdout
    assert "`repogen build --no-smoke`" in doctor.stdout
    serve = macos.run("serve", ".")
    assert (serve.returncode, "--no-smoke" in serve.stderr) == (6, False)


@pytest.mark.full
def test_build_without_and_with_a_remote_smoke_test(
    macos: Project, triton: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker needs nothing that only Linux has."""
    first = macos.run("build", "--no-smoke", "--json")
    assert first.returncode == 0, first.stderr
    (model,) = json.loads(first.stdout)["models"]
    assert (model["status"], model["smoke"]) == ("published", None)
    endpoint = triton.running.endpoint
    monkeypatch.setenv("REPOGEN_CONTROL_HEADER", f"{endpoint.control.key}={endpoint.control.value}")
    second = macos.run("build", "--force", "--server", endpoint.grpc, "--json")
    assert second.returncode == 0, second.stderr
    (model,) = json.loads(second.stdout)["models"]
    assert (model["status"], model["version"], model["smoke"]["passed"]) == ("published", 2, True)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL])
def test_interrupted_build_leaves_no_process(macos: Project, number: signal.Signals) -> None:
    """Without subreapers and signals at the end of a parent; after SIGKILL, within some seconds."""
    (macos.directory / "models.py").write_text("import time\n\n\ndef build():\n    time.sleep(600)\n", encoding="utf-8")
    with macos.start("build", "--no-smoke") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "source:" in line:
                break
        process.send_signal(number)
        process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    deadline = time.monotonic() + 60
    while not macos.vanished() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert macos.vanished()
