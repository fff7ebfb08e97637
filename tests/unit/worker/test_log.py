"""What the end of a log tells of a worker's end."""

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


def test_a_crash_is_placed_at_the_users_innermost_line() -> None:
    """Of the thread that crashed; the stack itself is no last word, and no path of the machine is shown."""
    log = WorkerLog(CRASH, ROOT)
    assert log.location == "nets/model.py:12"
    assert log.last_lines == "  four of models.py\n  torch/x.py:3: five\n  last words"


def test_a_stack_that_was_asked_for_tells_where_it_hangs() -> None:
    """As at the time limit; what was printed before stays the last word."""
    log = WorkerLog('step 3\nStack (most recent call first):\n  File "/srv/project/models.py", line 9 in build\n', ROOT)
    assert (log.location, log.last_lines) == ("models.py:9", "  step 3")


@pytest.mark.parametrize(
    "text", ["", "\n\n", "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"]
)
def test_a_log_may_tell_nothing(text: str) -> None:
    """No place and no words are better than wrong ones."""
    assert (WorkerLog(text, ROOT).location, WorkerLog(text, ROOT).last_lines) == ("", "")


def test_of_a_long_log_the_end_is_read(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 included."""
    (tmp_path / "worker.log").write_bytes(b"x" * 100_000 + b"\n\xffend\n")
    text = read_log(tmp_path / "worker.log", ROOT).text
    assert (len(text), text[-6:]) == (16 * 1024, "\n\ufffdend\n")


def test_a_link_to_the_users_file_is_that_file(tmp_path: Path) -> None:
    """Python code runs through one, for the files beside it."""
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "step.py").touch()
    (tmp_path / "model.py").symlink_to(tmp_path / "spec" / "step.py")
    stack = f'Stack (most recent call first):\n  File "{tmp_path}/model.py", line 9 in execute\n'
    assert WorkerLog(stack, tmp_path / "spec").location == "step.py:9"
