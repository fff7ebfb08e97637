"""Blocks whose processor time and memory are limited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from repogen.files import open_regular
from repogen.files import work_limit as module
from repogen.files.work_limit import WorkLimitError, shared, work_limit
from repogen.repository import digest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare often, so that tests are short."""
    monkeypatch.setattr(module, "_INTERVAL", 0.004)
    monkeypatch.setattr(module, "_PAUSE", 0.02)


def compute(seconds: float) -> None:
    """Use processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_block_ends_after_its_processor_time() -> None:
    """The error has a code, and the timer is stopped."""
    started = time.process_time()
    message = "^model m needs more than 0.02 s of processor time to be read$"
    with pytest.raises(WorkLimitError, match=message) as raised, work_limit("model m", 0.02):
        compute(10)
    assert time.process_time() - started < 5
    assert raised.value.code == "work-limit"
    assert raised.value.exit_code == 7
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_waiting_is_not_limited() -> None:
    """A slow disk is not an attack."""
    with work_limit("m", 0.02):
        time.sleep(0.05)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth counts, not the memory before the block."""
    monkeypatch.setattr(module, "_MEMORY", 2**30)
    sizes = iter([2**30])
    monkeypatch.setattr(module, "_resident", lambda: next(sizes, 2**31 + 1))
    with pytest.raises(WorkLimitError, match="m needs more than 1 GiB of memory"), work_limit("m"):
        compute(10)


def test_resident_memory_is_measured() -> None:
    """The unit is bytes; a process of its own, because other tests' memory may be released at any time."""
    code = """
from repogen.files.work_limit import _resident
before = _resident()
content = b"x" * 2**26
print(_resident() - before)
"""
    growth = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert 2**25 < int(growth) < 2**27


def test_error_that_a_library_ignores_is_raised_again() -> None:
    """An exception in a destructor, in a callback, or in a library with ``except Exception`` is lost."""
    interruptions: list[WorkLimitError] = []

    def ignore_errors() -> None:
        while len(interruptions) < 2:
            try:
                compute(10)
            except WorkLimitError as error:
                interruptions.append(error)

    with pytest.raises(WorkLimitError), work_limit("m", 0.02):
        ignore_errors()


def test_error_that_a_library_replaces_is_raised() -> None:
    """A parser reports any error as a malformed file."""

    def replace_error() -> None:
        try:
            compute(10)
        except WorkLimitError as error:
            raise ValueError("malformed") from error

    with pytest.raises(WorkLimitError) as raised, work_limit("m", 0.02):
        replace_error()
    assert isinstance(raised.value.__cause__, ValueError)


def test_inner_block_does_not_end_the_outer_one() -> None:
    """A command continues with the next model, within its own limit."""
    with work_limit("repository", 100):
        with suppress(WorkLimitError), work_limit("model", 0.02):
            compute(10)
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 0
        compute(0.05)


def test_outer_block_limits_all_inner_ones() -> None:
    """The code that continues with the next model ignores the errors of one."""
    models = []

    def read_models() -> None:
        for number in range(1000):
            with suppress(WorkLimitError), work_limit("model", 0.02):
                models.append(number)
                compute(10)

    started = time.process_time()
    with pytest.raises(WorkLimitError, match=r"^repository needs"), work_limit("repository", 0.05):
        read_models()
    assert time.process_time() - started < 5
    assert len(models) < 10


def test_interruption_does_not_leave_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may arrive while a block begins or ends."""
    monkeypatch.setattr(module, "_INTERVAL", 0.0001)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    for _ in range(100):
        with suppress(WorkLimitError), work_limit("m", 0.0):
            compute(0.0002)
    assert not module.is_counted()
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_files_on_the_disk_extend_a_limit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files may be hashed; links and holes do not count."""
    monkeypatch.setattr(module, "_BYTES_PER_SECOND", 2**24)
    (tmp_path / "file").write_bytes(b"x" * 2**21)
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**40)
    message = r"more than 0\.125 s"

    def read_files() -> None:
        for name in ("file", "link", "sparse", "file"):
            open_regular(tmp_path / name).close()
        compute(10)

    with pytest.raises(WorkLimitError, match=message), work_limit("m", 0.0):
        read_files()


def test_timer_of_a_profiler_is_restored() -> None:
    """A program that calls repogen may be profiled."""
    samples = []
    previous = signal.signal(signal.SIGPROF, lambda *_: samples.append(1))
    try:
        signal.setitimer(signal.ITIMER_PROF, 50, 60)
        with work_limit("m"):
            compute(0.02)
        remaining, interval = signal.getitimer(signal.ITIMER_PROF)
        assert remaining > 40
        assert interval == 60
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def test_other_threads_are_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is a system without the timer. Files are read once there as well."""
    results: list[object] = []

    def run() -> None:
        with work_limit("m", 0.0):
            compute(0.02)
            shared("x")[1] = 2
            with work_limit("n"):
                results.append((module.is_counted(), shared("x")))
        results.append(shared("x"))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    monkeypatch.delattr(signal, "setitimer")
    run()
    assert results == [(False, {1: 2}), {}] * 2


def test_code_with_locks_is_not_interrupted() -> None:
    """A lock of a pool of threads that is not released would block the command forever."""

    def compute_in_a_pool() -> None:
        with ThreadPoolExecutor(1) as pool:
            list(pool.map(compute, [0.1]))
        compute(10)

    with pytest.raises(WorkLimitError) as raised, work_limit("m", 0.02):
        compute_in_a_pool()
    modules = {entry.frame.f_globals["__name__"] for entry in raised.traceback}
    assert not {name for name in modules if name.startswith(("concurrent", "threading"))}


def test_hashing_in_threads_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is not interrupted, so it gets a part of the files at a time."""
    monkeypatch.setattr(digest, "_MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(digest, "_FILES_AT_ONCE", 2)
    calls = []

    def hash_file(*arguments: object) -> str:
        calls.append(arguments)
        compute(0.02)
        return ""

    monkeypatch.setattr(digest, "sha256_file", hash_file)
    with pytest.raises(WorkLimitError), work_limit("m", 0.02):
        digest.sha256_files([tmp_path] * 100)
    assert len(calls) <= 10


def test_shared_values_exist_until_the_outermost_block_ends() -> None:
    """A file to which links lead is read once per command."""
    with work_limit("a"):
        with work_limit("b"):
            shared("x")[1] = 2
        assert shared("x") == {1: 2}
    assert shared("x") == {}
    with work_limit("a"):
        assert shared("x") == {}
