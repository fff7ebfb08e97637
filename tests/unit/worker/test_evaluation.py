"""Evaluation code in a process of its own: what it returns, and every way in which it can end."""

from __future__ import annotations

from pathlib import Path

import pytest

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import GateError, RepogenError, SourceError
from repogen.smoke.predict import Address
from repogen.worker.evaluation import EvaluationJob, run_evaluation

EVALUATORS = """\
import os
import subprocess
import sys
import time
from pathlib import Path


def number(predict, data):
    print("printed")
    import numpy as np
    return np.float32(0.5)


def several(predict, data):
    return {"accuracy": 0.5, "rows": len(data.read_bytes())}


def fails(predict, data):
    raise RuntimeError("no such label")


def no_input(predict, data):
    return predict({})


def nothing(predict, data):
    return None


def not_finite(predict, data):
    return {"accuracy": float("nan"), "rows": 3}


def leaves(predict, data):
    print("the end", flush=True)
    os._exit(3)


def forks(predict, data):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return 1 if child else 2


def sleeps(predict, data):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(__file__).with_name("pid").write_text(str(child.pid))
    time.sleep(600)
"""
SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 2)),))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with evaluation code and three bytes of data."""
    (tmp_path / "evaluators.py").write_text(EVALUATORS, encoding="utf-8")
    (tmp_path / "data.bin").write_bytes(b"123")
    return tmp_path


def job(root: Path, name: str, seconds: float = 60.0) -> EvaluationJob:
    """Return a job for one of the callables, with an address at which no server listens."""
    address = Address("127.0.0.1:1", "m", 1, 8, SIGNATURE)
    return EvaluationJob(f"evaluators.py:{name}", root, root / "data.bin", address, seconds)


@pytest.mark.parametrize(("name", "expected"), [("number", {"": 0.5}), ("several", {"accuracy": 0.5, "rows": 3.0})])
def test_figures_are_returned_by_name(root: Path, name: str, expected: dict[str, float]) -> None:
    """One number has the name ""; printed text is not part of the result."""
    assert expected == run_evaluation(job(root, name))


@pytest.mark.parametrize(
    ("name", "where", "message"),
    [
        ("fails", "evaluators.py:19", "evaluators.py:fails failed: RuntimeError: no such label"),
        (
            "no_input",
            "evaluators.py:23",
            "evaluators.py:no_input failed: ValueError: input x is missing",
        ),
        ("nothing", "", "evaluators.py:nothing did not return a number: it is None"),
        ("not_finite", "", "evaluators.py:not_finite did not return a number: accuracy is nan"),
        ("leaves", "", "the process of evaluators.py:leaves exited with status 3; last log lines:\n  the end"),
        ("misspelled", "evaluators.py:misspelled", "evaluators.py has no 'misspelled'"),
    ],
)
def test_failures_are_errors_with_a_location(root: Path, name: str, where: str, message: str) -> None:
    """The message says what the user's code did."""
    with pytest.raises(RepogenError) as caught:
        run_evaluation(job(root, name))
    assert (where, message) == (caught.value.where, caught.value.message)


def test_time_limit_ends_the_code_and_the_processes_that_it_started(root: Path) -> None:
    """Including one that left its session; the error has the line that was running."""
    with pytest.raises(GateError, match="was still running after 3 s") as caught:
        run_evaluation(job(root, "sleeps", seconds=3.0))
    assert (caught.value.code, caught.value.where) == ("gate.evaluation-timeout", "evaluators.py:49")
    pid = (root / "pid").read_text(encoding="utf-8")
    assert not Path(f"/proc/{pid}").exists()


def test_time_limit_does_not_include_the_start_of_the_interpreter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that needs longer than the limit to start does not fail the gate."""
    slow_start = root / "slow_start"
    slow_start.mkdir()
    (slow_start / "sitecustomize.py").write_text("import time\ntime.sleep(5)\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(slow_start))
    assert run_evaluation(job(root, "several", seconds=4.0)) == {"accuracy": 0.5, "rows": 3.0}


def test_error_of_user_code_keeps_its_class(root: Path) -> None:
    """It is a SourceError, as in a build."""
    with pytest.raises(SourceError):
        run_evaluation(job(root, "fails"))


def test_fork_of_user_code_does_not_send_events(root: Path) -> None:
    """Its child returns from the callable also, and only the parent's figures count."""
    assert run_evaluation(job(root, "forks")) == {"": 1.0}
