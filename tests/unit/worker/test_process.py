"""Worker processes that really run: what they answer, and every way in which they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.errors import RepogenError
from repogen.spec.models import ModelSpec
from repogen.values.progress import Silent
from repogen.worker import Job, run_worker
from repogen.worker.job import EVENT, JOB, Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from repogen.values.artifacts import BuiltModel

    Work = Callable[..., BuiltModel]


class Steps(Silent):
    """Remembers the steps."""

    def __init__(self) -> None:
        """Start with none."""
        self.seen: list[str] = []

    def step(self, model: str, step: str) -> None:
        """Remember."""
        self.seen.append(f"{model} {step}")


def job(root: Path, code: str, **limits: Any) -> Job:
    """Return a job whose factory is the code's ``build``."""
    (root / "models.py").write_text("import os, sys, time\n" + textwrap.dedent(code))
    work = root / "work"
    work.mkdir(exist_ok=True)
    model = ModelSpec.model_validate(
        {
            "source": {"factory": "models.py:build"},
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
            "dims": {"batch": {"max": 4}},
            "export": {"exporter": "torchscript"},
            "limits": limits,
        }
    )
    return Job("tiny", model, root, "24.10", work, 1)


def ended(root: Path, code: str, **limits: Any) -> RepogenError:
    """Return how a worker that must fail ended."""
    with pytest.raises(RepogenError) as caught:
        run_worker(job(root, code, **limits), Silent(), threading.Event())
    assert str(root) not in caught.value.message + caught.value.hint + caught.value.where
    return caught.value


def test_a_model_is_built_whatever_its_code_prints(tmp_path: Path) -> None:
    """Steps arrive in order, prints go to the log, and what was imported is recorded."""
    (tmp_path / "layers.py").write_text("from torch import nn\nLAYER = nn.Linear(4, 2)\n")
    steps = Steps()
    code = """
    from layers import LAYER
    print('{"kind": "error"}')
    os.write(1, b"raw bytes \\xff\\n")
    os.write(2, b"more\\n")
    def build():
        print("in the factory", flush=True)
        return LAYER
    """
    built = run_worker(job(tmp_path, code), steps, threading.Event())
    assert steps.seen == ["tiny source", "tiny export", "tiny optimize", "tiny validate"]
    assert (built.artifact.exporter, built.parity.passed, built.batch.max_batch_size) == ("torchscript", True, 4)
    log = (tmp_path / "work" / "worker.log").read_bytes()
    assert b"raw bytes" in log
    assert b"in the factory" in log
    assert {"models.py", "layers.py"} == set(built.imported.files)
    assert {"torch", "numpy", "onnx"} <= set(built.imported.distributions)
    assert list(built.seconds) == ["source", "export", "optimize", "validate"]
    assert built.peak_rss_bytes > 2**20
    assert not (tmp_path / "__pycache__").exists()


def test_a_hang_is_stopped_at_the_time_limit(tmp_path: Path) -> None:
    """The step it was in is said."""
    error = ended(tmp_path, "def build(): time.sleep(3600)\n", timeout_seconds=4.0)
    assert (error.code, error.exit_code) == ("worker.timeout", 3)
    assert "still running after 4 s" in error.message


def test_memory_is_limited(tmp_path: Path) -> None:
    """A factory that takes a gigabyte is stopped below it."""
    error = ended(tmp_path, "def build():\n    hog = b'x' * 2**30\n    time.sleep(3600)\n", memory_mb=800)
    assert error.code == "worker.memory"
    assert "more than 800 MB" in error.message


def test_a_death_is_heard_although_a_child_of_the_model_lives_on(tmp_path: Path) -> None:
    """A forked process keeps the pipe open; the worker's end counts, and the fork ends with it."""
    code = """
    def build():
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        open(os.path.join(os.path.dirname(__file__), "fork"), "w").write(str(pid))
        os._exit(7)
    """
    error = ended(tmp_path, code, timeout_seconds=120.0)
    assert (error.code, "status 7" in error.message) == ("worker.exited", True)
    assert not runs(int((tmp_path / "fork").read_text()))


def test_a_crash_of_native_code_is_named(tmp_path: Path) -> None:
    """The signal, and the log for --debug."""
    error = ended(tmp_path, "import signal\ndef build(): os.write(2, b'last words'); os.kill(os.getpid(), 11)\n")
    assert (error.code, "SIGSEGV" in error.message, "last words" in error.details) == ("worker.killed", True, True)


def test_an_error_is_placed_relative_to_the_spec(tmp_path: Path) -> None:
    """The user's file and line, no traceback in the message."""
    error = ended(tmp_path, "def build():\n    raise ValueError('no weights here')\n")
    assert (error.code, error.where) == ("source.user-code", "models.py:3")
    assert error.message == "'models.py:build' failed: ValueError: no weights here"


def test_cancelling_kills_the_worker(tmp_path: Path) -> None:
    """Ctrl-C leaves no process."""
    cancelled = threading.Event()
    cancelled.set()
    work = job(tmp_path, "def build(): time.sleep(3600)\n")
    with pytest.raises(KeyboardInterrupt):
        run_worker(work, Silent(), cancelled)


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie, once it had time to end."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


def test_the_worker_dies_with_its_parent(tmp_path: Path) -> None:
    """``kill -9`` of repogen leaves no worker behind."""
    code = "open(os.path.join(os.path.dirname(__file__), 'pid'), 'w').write(f'{os.getpid()}\\n')\ntime.sleep(3600)\n"
    (tmp_path / "job.json").write_bytes(JOB.dump_json(job(tmp_path, code)))
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from repogen.values.progress import Silent; from repogen.worker import run_worker\n"
        "from repogen.worker.job import JOB\n"
        "run_worker(JOB.validate_json(Path(sys.argv[1]).read_bytes()), Silent(), threading.Event())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "job.json")]) as parent:
        written = tmp_path / "pid"
        while parent.poll() is None and not (written.exists() and written.read_text().endswith("\n")):
            time.sleep(0.05)
        worker = int(written.read_text())
        assert Path(f"/proc/{worker}").exists()
        os.kill(parent.pid, signal.SIGKILL)
    assert not runs(worker)


def test_jobs_and_events_survive_their_journey(tmp_path: Path) -> None:
    """What crosses the pipes is equal on the other side."""
    sent = job(tmp_path, "")
    assert JOB.validate_json(JOB.dump_json(sent)) == sent
    event = Event("step", "export")
    assert EVENT.validate_json(EVENT.dump_json(event)) == event
