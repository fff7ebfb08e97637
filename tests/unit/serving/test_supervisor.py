"""The supervisor of servers: the modes of files and shared memory that they create."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from repogen.serving.process import spawn_supervised

if TYPE_CHECKING:
    from pathlib import Path

_CREATE = """
import os
for mode in (0o644, 0o755):
    file = os.open(f"file{mode:o}", os.O_CREAT | os.O_WRONLY, 0o644)
    print(f"{os.fstat(file).st_mode & 0o777:o}")
    os.fchmod(file, mode)
    print(f"{os.fstat(file).st_mode & 0o777:o}")
"""


def test_files_of_a_server_are_private(tmp_path: Path) -> None:
    """Boost sets the mode of the Python backend's shared memory to 0644; other modes are those of a model's code."""
    log = tmp_path / "log"
    supervisor = spawn_supervised([sys.executable, "-c", _CREATE], tmp_path, log, "repogen-test")
    assert supervisor.wait(60) == 0
    assert log.read_text(encoding="utf-8").split() == ["600", "600", "600", "755"]


def test_temporary_files_of_a_server_are_private(tmp_path: Path) -> None:
    """Python models may use `torch.compile`, and another user could create ``torchinductor_USER`` in /tmp."""
    log = tmp_path / "log"
    code = "import tempfile; print(tempfile.gettempdir())"
    supervisor = spawn_supervised([sys.executable, "-c", code], tmp_path, log, "repogen-test")
    assert supervisor.wait(60) == 0
    assert log.read_text(encoding="utf-8").strip() == str(tmp_path)
