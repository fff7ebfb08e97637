"""The last lines and the crash location in the log of a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from repogen.worker.log import WorkerLog, read_log

ROOT = Path("/srv/project")
CRASH = """one
two
three
  four of /srv/project/models.py
/opt/env/lib/python3.11/site-packages/torch/x.py:3: five
last wordsFatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/srv/project/loader.py", line 1 in wait

Current thread 0x00007f02 (most recent call first):
  File "/opt/env/lib/python3.11/site-packages/torch/nn/linear.py", line 7 in forward
  File "/srv/project/nets/model.py", line 12 in forward
  File "/srv/project/models.py", line 3 in build

Extension modules: numpy.linalg (total: 1)
"""


def test_location_of_a_crash_is_the_innermost_line_of_user_code() -> None:
    """Of the thread that crashed. The last lines contain neither the stack nor paths of the machine."""
    log = WorkerLog(CRASH, ROOT)
    assert log.location == "nets/model.py:12"
    assert log.last_lines == "  four of models.py\n  torch/x.py:3: five\n  last words"


def test_location_of_a_requested_stack() -> None:
    """As at the time limit; the last lines are those before the stack."""
    log = WorkerLog('step 3\nStack (most recent call first):\n  File "/srv/project/models.py", line 9 in build\n', ROOT)
    assert (log.location, log.last_lines) == ("models.py:9", "  step 3")


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"]
)
def test_log_without_lines_or_location(text: str) -> None:
    """Both are empty."""
    assert (WorkerLog(text, ROOT).location, WorkerLog(text, ROOT).last_lines) == ("", "")


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are replaced."""
    (tmp_path / "worker.log").write_bytes(b"x" * 100_000 + b"\n\xffend\n")
    text = read_log(tmp_path / "worker.log", ROOT).text
    assert (len(text), text[-6:]) == (16 * 1024, "\n\ufffdend\n")


def test_symlink_to_a_file_of_the_user(tmp_path: Path) -> None:
    """Python models run through one."""
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "step.py").touch()
    (tmp_path / "model.py").symlink_to(tmp_path / "spec" / "step.py")
    stack = f'Stack (most recent call first):\n  File "{tmp_path}/model.py", line 9 in execute\n'
    assert WorkerLog(stack, tmp_path / "spec").location == "step.py:9"
