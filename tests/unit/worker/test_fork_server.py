"""Warm workers: forked from a process that has imported torch, with the isolation of one that is started directly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from repogen.artifacts.progress import Silent
from repogen.spec.models import ModelSpec
from repogen.worker.job import JOB, Job, Outcome
from repogen.worker.process import common_modules, open_fork_server, run_worker

LINEAR = "import os, sys, time, torch\ndef build(): return torch.nn.Linear(4, 2)\n"
# The first call starts processes as careless code does, and does not return; the second returns a model.
HANGS_ONCE = """
import os, subprocess, time, torch
def build():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pids")
    if os.path.exists(path):
        return torch.nn.Linear(4, 2)
    pids = [os.getpid(), subprocess.Popen(["sleep", "1000"], start_new_session=True).pid]
    with open(path + ".part", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.replace(path + ".part", path)
    time.sleep(3600)
"""


def job(root: Path, code: str = LINEAR, exporter: str = "torchscript") -> Job:
    """Return a job whose factory is the code's ``build``."""
    (root / "models.py").write_text(code)
    (root / "work").mkdir(exist_ok=True)
    model = ModelSpec.model_validate(
        {
            "source": {"factory": "models.py:build"},
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
            "dims": {"batch": {"max": 4}},
            "export": {"exporter": exporter},
        }
    )
    return Job("tiny", model, root, "24.10", root / "work", 1)


def run(task: Job, server: object = None) -> Outcome:
    """Build a model."""
    return run_worker(task, Silent(), threading.Event(), server)  # type: ignore[arg-type] # a ForkServer or None


def ended(pid: int) -> bool:
    """Wait until a process has ended; return whether it has."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def wait_for(path: Path) -> list[int]:
    """Return the process IDs in a file as soon as it exists."""
    for _ in range(2400):
        if path.exists():
            return [int(pid) for pid in path.read_text().split()]
        time.sleep(0.05)
    raise AssertionError(f"{path.name} was not written")


@pytest.mark.full
def test_a_fork_imports_what_a_direct_worker_imports(tmp_path: Path) -> None:
    """The imported distributions are inputs of a build, so they must not depend on how its worker was started."""
    task = job(tmp_path, exporter="dynamo")
    with open_fork_server([task.model, task.model], 1) as server:
        forked = run(task, server).model()
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 1  # noqa: PTH208 - names only
    for path in sorted((tmp_path / "work").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    direct = run(task).model()
    assert forked.imported == direct.imported
    assert {"torch", "onnxscript", "numpy"} <= set(direct.imported.distributions)


def test_modules_are_those_that_all_models_need(tmp_path: Path) -> None:
    """One that a model does not need would become an input of its build."""
    torch_model = job(tmp_path).model
    code = ModelSpec.model_validate({"source": {"kind": "python", "path": "code.py"}})
    assert "torch._dynamo" in common_modules([torch_model])
    assert common_modules([torch_model, code]) == common_modules([code]) == ["repogen.worker.sequence"]


def test_server_that_dies_while_a_worker_runs(tmp_path: Path) -> None:
    """The worker and everything that it started end, and the model is built by a worker that is started directly."""
    task = job(tmp_path, HANGS_ONCE)
    outcomes: list[Outcome] = []
    with open_fork_server([task.model], 1) as server:
        builder = threading.Thread(target=lambda: outcomes.append(run(task, server)))
        builder.start()
        pids = wait_for(tmp_path / "pids")
        os.kill(server.pid, signal.SIGKILL)
        builder.join()
    assert outcomes[0].model().parity.passed
    assert [pid for pid in pids if not ended(pid)] == []


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_server_that_does_not_respond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """The worker is started directly."""
    monkeypatch.setattr("repogen.worker.fork_server._START_SECONDS", 1.0)
    task = job(tmp_path)
    with open_fork_server([task.model], 1) as server:
        os.kill(server.pid, number)
        assert run(task, server).model().parity.passed
    assert ended(server.pid)


def test_server_and_workers_end_with_repogen(tmp_path: Path) -> None:
    """After ``kill -9`` of repogen nothing is left."""
    (tmp_path / "job.json").write_bytes(JOB.dump_json(job(tmp_path, HANGS_ONCE)))
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from repogen.artifacts.progress import Silent\n"
        "from repogen.worker.job import JOB; from repogen.worker.process import open_fork_server, run_worker\n"
        "job = JOB.validate_json(Path(sys.argv[1]).read_bytes())\n"
        "with open_fork_server([job.model], 1) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    run_worker(job, Silent(), threading.Event(), server)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "job.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        pids = wait_for(tmp_path / "pids")
        os.kill(parent.pid, signal.SIGKILL)
    assert [pid for pid in [server, *pids] if not ended(pid)] == []


def test_forks_do_not_inherit_secrets_or_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has the environment of a direct worker, and neither the server's socket nor files of other workers."""
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret-value")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    code = """
import os, stat
def build():
    leaked = [name for name, value in os.environ.items() if "secret-value" in value]
    files = [os.fstat(int(fd)).st_mode for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    threads = os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]
    raise RuntimeError(f"leaked {leaked} and {sum(map(stat.S_ISSOCK, files))} sockets; {threads}")
"""
    task = job(tmp_path, code)
    with open_fork_server([task.model], 1) as server:
        assert "leaked [] and 0 sockets; ('1', 'PASSIVE')" in str(run(task, server).result)


def test_forks_have_their_own_random_numbers(tmp_path: Path) -> None:
    """As processes that are started directly have."""
    code = """
import random, numpy
def build(): raise RuntimeError(f"{random.random()} {numpy.random.rand()}")
"""
    task = job(tmp_path, code)
    with open_fork_server([task.model], 1) as server:
        first, second = str(run(task, server).result), str(run(task, server).result)
    assert not set(first.split()[-2:]) & set(second.split()[-2:])
