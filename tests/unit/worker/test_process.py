"""Real worker processes: their results, and every way in which they can end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.progress import Silent
from repogen.errors import RepogenError, SourceError, SpecError
from repogen.spec.models import LimitsSpec, ModelSpec
from repogen.worker.job import EVENT, JOB, Event, Job, Outcome
from repogen.worker.process import open_fork_server, run_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.worker.fork_server import ForkServer

MODEL = ModelSpec.model_validate(
    {
        "source": {"factory": "models.py:build"},
        "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
        "dims": {"batch": {"max": 4}},
        "export": {"exporter": "torchscript"},
    }
)
both = pytest.mark.parametrize("started", ["directly", pytest.param("forked", marks=pytest.mark.full)], indirect=True)
"""Runs a test with a worker that is started directly, and with one that a fork server forks."""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    """Return a server for the workers of ``job``; it imports torch once for all tests."""
    with open_fork_server([MODEL], 1) as server:
        yield server


@pytest.fixture(autouse=True)
def started(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the workers of a test directly, unless it asks for the fork server."""
    if getattr(request, "param", "") == "forked":
        server = request.getfixturevalue("fork_server")
        monkeypatch.setattr(sys.modules[__name__], "run_worker", partial(run_worker, server=server))


class Steps(Silent):
    """Records the steps."""

    def __init__(self) -> None:
        """Start without steps."""
        self.steps: list[str] = []

    def step(self, model: str, step: str) -> None:
        """Record a step."""
        self.steps.append(f"{model} {step}")


def job(root: Path, code: str, **limits: Any) -> Job:
    """Return a job whose factory is the code's ``build``."""
    (root / "models.py").write_text("import os, sys, time\n" + textwrap.dedent(code))
    work = root / "work"
    work.mkdir(exist_ok=True)
    model = MODEL.model_copy(update={"limits": LimitsSpec.model_validate(limits)})
    return Job("tiny", model, root, "24.10", work, 1)


def outcome(root: Path, code: str, **limits: Any) -> Outcome:
    """Return how the worker for the code's ``build`` ended."""
    return run_worker(job(root, code, **limits), Silent(), threading.Event())


def ended(root: Path, code: str, **limits: Any) -> RepogenError:
    """Return the error of a worker that is expected to fail."""
    with pytest.raises(RepogenError) as caught:
        outcome(root, code, **limits).model()
    assert str(root) not in caught.value.message + caught.value.hint + caught.value.where
    return caught.value


def test_path_that_is_not_utf8(tmp_path: Path) -> None:
    """The job is JSON, so the error names the path before a process is started."""
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    with pytest.raises(SpecError, match=r"caf\udce9 can't be used: its name has bytes that are not UTF-8"):
        outcome(root, "")


@both
def test_libraries_send_no_telemetry(tmp_path: Path) -> None:
    """The variables are set before the user's code, and before any library is imported."""
    code = """
        def build():
            names = ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY")
            raise SystemExit([os.environ.get(name) for name in names])
    """
    assert "['1', '1']" in ended(tmp_path, code).details + ended(tmp_path, code).message


# Starts processes as careless model code does: one in the worker's process group, one in a session of its own, and one
# whose parent has ended; and writes their IDs to a file.
STARTS = """
import subprocess
def start():
    sleep = ["sleep", "1000"]
    pids = [subprocess.Popen(sleep).pid, subprocess.Popen(sleep, start_new_session=True).pid]
    shell = subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pids")
    with open(path + ".part", "w") as file:
        file.write(" ".join(map(str, [os.getpid(), *pids, int(shell.stdout)])))
    os.replace(path + ".part", path)
"""


def runs(pid: int) -> bool:
    """Return whether a process is still running, and not a zombie, after it had time to end."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


def leftovers(root: Path) -> list[int]:
    """Return the IDs of the worker and of the processes started by ``STARTS`` that are still running."""
    started = [int(pid) for pid in (root / "pids").read_text().split()]
    assert len(started) == 4
    return [pid for pid in started if runs(pid)]


@both
def test_output_of_model_code_does_not_disturb_the_build(tmp_path: Path) -> None:
    """Steps arrive in order, output goes to the log, and imported code is recorded."""
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
    ended = run_worker(job(tmp_path, code), steps, threading.Event())
    built = ended.model()
    assert steps.steps == ["tiny source", "tiny export", "tiny optimize", "tiny validate"]
    assert (built.artifact.exporter, built.parity.passed, built.batch.max_batch_size) == ("torchscript", True, 4)
    log = (tmp_path / "work" / "worker.log").read_bytes()
    assert b"raw bytes" in log
    assert b"in the factory" in log
    assert {"models.py", "layers.py"} == set(built.imported.files)
    assert {"torch", "numpy", "onnx"} <= set(built.imported.distributions)
    assert list(ended.diagnostics.seconds) == ["source", "export", "optimize", "validate"]
    assert [attempt.ok for attempt in ended.diagnostics.attempts] == [True]
    assert any("training mode" in note for note in ended.diagnostics.notes)
    assert ended.diagnostics.peak_rss_bytes > 2**20
    assert not (tmp_path / "__pycache__").exists()


@both
def test_memory_limit(tmp_path: Path) -> None:
    """A factory that allocates a gigabyte is killed at its limit."""
    error = ended(tmp_path, "def build():\n    hog = b'x' * 2**30\n    time.sleep(3600)\n", memory_mb=800)
    assert error.code == "worker.memory"
    assert "more than 800 MB" in error.message


@both
def test_memory_limit_includes_started_processes(tmp_path: Path) -> None:
    """Processes of the model, orphans among them, count together; the error says how much and in how many."""
    code = """
    import subprocess
    HOG = "import time; hog = bytearray(b'x') * 300 * 2**20; print(flush=True); time.sleep(3600)"
    def build():
        for command in ([sys.executable, "-c", HOG], ["sh", "-c", 'setsid "$@" &', "sh", sys.executable, "-c", HOG]):
            subprocess.Popen(command, start_new_session=True)
        time.sleep(3600)
    """
    error = ended(tmp_path, code, memory_mb=580)
    assert error.code == "worker.memory"
    assert re.fullmatch(
        r"the step 'source' used \d{3,4} MB of memory in \d processes \(the largest has \d{3} MB\), more than 580 MB",
        error.message,
    )


@both
def test_shared_memory_counts_once(tmp_path: Path) -> None:
    """Forked processes share the pages of the model until they write to them."""
    code = """
    hog = b"x" * (300 * 2**20)
    from torch import nn
    def build():
        if not all(os.fork() for _ in range(4)):
            time.sleep(3600)
        time.sleep(1)
        return nn.Linear(4, 2)
    """
    assert outcome(tmp_path, code, memory_mb=1500).model().parity.passed


@both
def test_exit_is_detected_while_a_forked_process_is_running(tmp_path: Path) -> None:
    """A forked process keeps the pipe open; it is killed when the worker has ended."""
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


@both
def test_crash_of_native_code_has_signal_and_location(tmp_path: Path) -> None:
    """The message has the last output; the error has the user's line, and the whole stack for --debug."""
    code = """
    import ctypes
    def build():
        print("loading the table")
        os.write(2, b"last words")
        inner()
    def inner():
        ctypes.string_at(0)
    """
    error = ended(tmp_path, code)
    assert (error.code, error.where) == ("worker.killed", "models.py:9")
    assert error.message == (
        "the worker was killed by SIGSEGV in the step 'source'; last log lines:\n  loading the table\n  last words"
    )
    assert "Fatal Python error: Segmentation fault" in error.details
    assert "line 7 in build" in error.details


@both
def test_diagnostics_survive_a_crash_and_started_processes_do_not(tmp_path: Path) -> None:
    """After a crash in the export, notes and the times of earlier steps are available."""
    code = """
    import torch
    class Fatal(torch.nn.Module):
        def forward(self, x):
            if not isinstance(x.shape[0], int):
                os.kill(os.getpid(), 9)
            return x
    def build():
        start()
        return Fatal()
    """
    died = outcome(tmp_path, STARTS + textwrap.dedent(code))
    with pytest.raises(RepogenError, match="killed by SIGKILL in the step 'export'"):
        died.model()
    assert "training mode" in died.diagnostics.notes[0]
    assert list(died.diagnostics.seconds) == ["source", "export"]
    assert died.diagnostics.peak_rss_bytes > 2**20
    assert leftovers(tmp_path) == []


def test_diagnostics_are_returned_with_an_error(tmp_path: Path) -> None:
    """Attempts, notes, times and output of a model that no exporter could export."""
    code = """
    from torch import nn
    class Baked(nn.Module):
        def forward(self, x):
            print("shape", tuple(x.shape))
            return x.reshape(2, 4) * 1
    def build():
        return Baked()
    """
    failed = outcome(tmp_path, code)
    with pytest.raises(RepogenError) as caught:
        failed.model()
    assert [(attempt.exporter, attempt.ok) for attempt in failed.diagnostics.attempts] == [("torchscript", False)]
    assert failed.diagnostics.attempts[0].reason == caught.value.message
    assert "training mode" in failed.diagnostics.notes[0]
    assert set(failed.diagnostics.seconds) >= {"source", "export"}
    assert "end of the worker's log:\n" in caught.value.details
    assert "shape (2, 4)" in caught.value.details


@both
def test_error_of_user_code_has_its_class_and_location(tmp_path: Path) -> None:
    """The file is relative to the spec; the message does not contain a traceback."""
    error = ended(tmp_path, "def build():\n    raise ValueError('no weights here')\n")
    assert (type(error), error.code, error.where) == (SourceError, "source.user-code", "models.py:3")
    assert error.message == "'models.py:build' failed: ValueError: no weights here"


@both
def test_model_that_closes_the_files_of_the_worker(tmp_path: Path) -> None:
    """Including the event pipe."""
    error = ended(tmp_path, "def build():\n    os.closerange(3, 100)\n")
    assert (error.code, "Bad file descriptor" in error.message) == ("worker.exited", True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("os.closerange(3, 100); open('/dev/null')", "worker.exited", "Bad file descriptor"),
        (
            "import shutil; shutil.rmtree(os.path.dirname(os.readlink('/proc/self/fd/2'))); os._exit(0)",
            "worker.exited",
            "status 0",
        ),
        ("raise ValueError('\\udcff' * 10)", "source.user-code", "ValueError: \\udcff"),
        ("raise GeneratorExit", "source.user-code", "GeneratorExit"),
        ("sys.setrecursionlimit(60)", "source.process", "lowered the recursion limit, after which RecursionError"),
        ("sys.path.clear()", "source.process", "removed entries of sys.path, after which ModuleNotFoundError"),
        ("import io; io.open = io.BytesIO = None", "source.process", "replaced io.open and replaced io.BytesIO"),
        ("sys.settrace(lambda *_: 1 / 0)", "source.user-code", "ZeroDivisionError"),
        ("raise type('X', (BaseException,), {'__str__': lambda _: 5})()", "source.user-code", "X: (no message"),
    ],
)
def test_code_that_damages_its_process_is_an_error_of_the_model(
    tmp_path: Path, statement: str, code: str, message: str
) -> None:
    """The result is not reported as a bug of repogen, and names the cause."""
    error = ended(tmp_path, f"from torch import nn\ndef build():\n    {statement}\n    return nn.Linear(4, 2)\n")
    assert (error.code, error.exit_code) == (code, 3)
    assert message in error.message


def test_long_error_of_a_model_is_shortened(tmp_path: Path) -> None:
    """Its event is not too long."""
    error = ended(tmp_path, "def build():\n    raise ValueError('x' * 50_000_000)\n")
    assert error.code == "source.user-code"
    assert len(error.message) < 2_000
    assert len(error.details) < 2_000_000


@both
def test_model_that_writes_to_the_event_pipe(tmp_path: Path) -> None:
    """It is an error of the model, and the worker is killed."""
    code = "def build():\n    os.write(int(sys.argv[1]), b'{}\\n')\n    time.sleep(3600)\n"
    error = ended(tmp_path, code)
    assert error.code == "worker.exited"
    assert error.message.startswith("the worker sent something that is not an event in the step 'source'")


@both
def test_started_processes_are_killed_and_a_fork_does_not_send_events(tmp_path: Path) -> None:
    """The code starts processes, and forks without exiting in the child."""
    code = STARTS + "from torch import nn\ndef build(): start(); os.fork(); return nn.Linear(4, 2)\n"
    steps = Steps()
    assert run_worker(job(tmp_path, code), steps, threading.Event()).model().parity.passed
    assert steps.steps == ["tiny source", "tiny export", "tiny optimize", "tiny validate"]
    assert leftovers(tmp_path) == []


@both
def test_cancelling_kills_the_worker(tmp_path: Path) -> None:
    """As with Ctrl-C."""
    cancelled = threading.Event()
    cancelled.set()
    work = job(tmp_path, "def build(): time.sleep(3600)\n")
    with pytest.raises(KeyboardInterrupt):
        run_worker(work, Silent(), cancelled)


def test_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the step and the line; started processes are killed.

    A substitute for torch hangs: on a busy machine, importing the real one takes longer than the limit.
    """
    (tmp_path / "torch").mkdir()
    hang = "import os, time\n" + STARTS + "start()\ntime.sleep(3600)\n"
    (tmp_path / "torch" / "__init__.py").write_text(hang)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    error = ended(tmp_path, "", timeout_seconds=5.0)
    assert (error.code, error.exit_code) == ("worker.timeout", 3)
    assert error.where == f"torch/__init__.py:{len(hang.splitlines())}"
    assert error.message == "the step 'import' was still running after 5 s"
    assert leftovers(tmp_path / "torch") == []


def test_worker_and_started_processes_end_with_repogen(tmp_path: Path) -> None:
    """After ``kill -9`` of repogen neither the worker nor a process of the model is left."""
    (tmp_path / "job.json").write_bytes(JOB.dump_json(job(tmp_path, STARTS + "start()\ntime.sleep(3600)\n")))
    program = (
        "import sys, threading; from pathlib import Path\n"
        "from repogen.artifacts.progress import Silent; from repogen.worker.process import run_worker\n"
        "from repogen.worker.job import JOB\n"
        "run_worker(JOB.validate_json(Path(sys.argv[1]).read_bytes()), Silent(), threading.Event())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "job.json")]) as parent:
        while parent.poll() is None and not (tmp_path / "pids").exists():
            time.sleep(0.05)
        os.kill(parent.pid, signal.SIGKILL)
    assert leftovers(tmp_path) == []


def test_jobs_and_events_are_unchanged_by_json(tmp_path: Path) -> None:
    """Decoding returns an equal object."""
    sent = job(tmp_path, "")
    assert JOB.validate_json(JOB.dump_json(sent)) == sent
    event = Event("step", step="export")
    assert EVENT.validate_json(EVENT.dump_json(event)) == event


def test_job_with_aliases_is_unchanged_by_json(tmp_path: Path) -> None:
    """Some keys of the spec have other names in Python."""
    sent = job(tmp_path, "")
    group = {"rate_limiter": {"resources": [{"name": "R", "global": True}]}}
    model = {**sent.model.model_dump(mode="json", by_alias=True), "triton": {"instance_group": [group]}}
    sent = replace(sent, model=ModelSpec.model_validate(model))
    assert JOB.validate_json(JOB.dump_json(sent, by_alias=True)) == sent


def test_code_of_a_model_does_not_inherit_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only repogen itself uses the control header and the credentials for MLflow."""
    monkeypatch.setenv("REPOGEN_CONTROL_HEADER", "X-Ops=secret-value")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret-value")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:secret-value@host/path")
    monkeypatch.setenv("HF_TOKEN", "kept")
    code = """
        def build():
            leaked = [name for name, value in os.environ.items() if "secret-value" in value]
            raise RuntimeError(f"leaked {leaked}, {len(os.environ['HF_TOKEN'])} {os.environ['MLFLOW_TRACKING_URI']}")
    """
    outcome = run_worker(job(tmp_path, code), Silent(), threading.Event())
    with pytest.raises(SourceError, match=r"leaked \[\], 4 https://host/path"):
        outcome.model()


@both
def test_temporary_files_are_private(tmp_path: Path) -> None:
    """PyTorch compiles and runs headers in ``torchinductor_USER``, which another user could create in /tmp."""
    code = """
        import tempfile
        def build():
            from torch._inductor.codecache import _HEADER_DIR
            raise RuntimeError(f"{tempfile.gettempdir()} {os.path.dirname(os.path.dirname(_HEADER_DIR))}")
    """
    shared = re.escape(tempfile.gettempdir())
    paths = re.search(rf"({shared}/repogen-\S+) ({shared}/repogen-[^/\s]+)", ended(tmp_path, code).message)
    assert paths is not None
    assert not Path(paths[1]).exists()


@both
def test_compile_cache_of_other_users_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.compile`` unpickles what is in it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(shared))
    code = """
        def build():
            from torch._inductor.runtime.cache_dir_utils import cache_dir
            raise RuntimeError(cache_dir())
    """
    message = ended(tmp_path, code).message
    assert "/repogen-" in message
    assert str(shared) not in message


def test_modules_of_transformers_are_private(tmp_path: Path) -> None:
    """HF_HOME may be shared, and transformers imports what is in its directory of modules."""
    sent = job(tmp_path, "def build(): raise RuntimeError(os.environ['HF_MODULES_CACHE'])")
    outcome = run_worker(sent, Silent(), threading.Event())
    with pytest.raises(SourceError, match=f"{sent.work_dir}/"):
        outcome.model()


@pytest.mark.parametrize(("mode", "status"), [(0o1777, 1), (0o755, 0)])
def test_started_python_does_not_import_from_a_public_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, status: int
) -> None:
    """``torch.compile`` runs ``python -c``, and another user may have created a ctypes.py there."""
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(mode)
    (public / "module_of_somebody.py").touch()
    monkeypatch.chdir(public)
    code = """
        import subprocess
        def build():
            command = [sys.executable, "-c", "import module_of_somebody"]
            raise RuntimeError(f"status {subprocess.run(command, stderr=subprocess.DEVNULL).returncode}")
    """
    assert f"status {status}" in ended(tmp_path, code).message
