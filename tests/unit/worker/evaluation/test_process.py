"""The user's judge in a process of its own: what it returns, and every way in which it may end."""

from __future__ import annotations

from pathlib import Path

import pytest

from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.errors import RepogenError
from repogen.smoke.predict import Address
from repogen.worker.evaluation.job import HoldoutJob
from repogen.worker.evaluation.process import run_holdout

JUDGES = """\
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


def asks_wrongly(predict, data):
    return predict({})


def nothing(predict, data):
    return None


def no_number(predict, data):
    return {"accuracy": float("nan"), "rows": 3}


def leaves(predict, data):
    print("the end", flush=True)
    os._exit(3)


def sleeps(predict, data):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(__file__).with_name("pid").write_text(str(child.pid))
    time.sleep(600)
"""
SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 2)),))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with judges and three bytes of data."""
    (tmp_path / "judges.py").write_text(JUDGES, encoding="utf-8")
    (tmp_path / "data.bin").write_bytes(b"123")
    return tmp_path


def job(root: Path, name: str, seconds: float = 60.0) -> HoldoutJob:
    """Return a job for one of the judges, of a version on a server that none of them asks."""
    address = Address("127.0.0.1:1", "m", 1, 8, SIGNATURE)
    return HoldoutJob(f"judges.py:{name}", root, root / "data.bin", address, seconds)


@pytest.mark.parametrize(("name", "expected"), [("number", {"": 0.5}), ("several", {"accuracy": 0.5, "rows": 3.0})])
def test_figures_come_back_by_name(root: Path, name: str, expected: dict[str, float]) -> None:
    """One number has no name; what is printed is no part of the answer."""
    assert expected == run_holdout(job(root, name))


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        ("fails", "judges.py:19", "judges.py:fails failed: RuntimeError: no such label"),
        ("asks_wrongly", "judges.py:23", "judges.py:asks_wrongly failed: ValueError: the input x is missing"),
        ("nothing", "", "judges.py:nothing returned no figure: it is None"),
        ("no_number", "", "judges.py:no_number returned no figure: accuracy is nan"),
        ("leaves", "", "the process of judges.py:leaves ended with status 3; the last it printed:\n  the end"),
        ("misspelled", "judges.py:misspelled", "judges.py has no 'misspelled'"),
    ],
)
def test_what_goes_wrong_is_an_error_with_its_place(root: Path, name: str, where: str, said: str) -> None:
    """The message says what the user's code did."""
    with pytest.raises(RepogenError) as caught:
        run_holdout(job(root, name))
    assert (where, said) == (caught.value.where, caught.value.message)


def test_the_time_limit_ends_it_and_all_that_it_started(root: Path) -> None:
    """Also what left its session."""
    with pytest.raises(RepogenError, match="was still running after 3 s"):
        run_holdout(job(root, "sleeps", seconds=3.0))
    pid = (root / "pid").read_text(encoding="utf-8")
    assert not Path(f"/proc/{pid}").exists()
