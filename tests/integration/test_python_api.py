"""The examples of docs/reference/python-api.md, run as written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They build, check, smoke-test, promote and sync the digits example for real."""
    directory = tmp_path / "digits"
    shutil.copytree(ROOT / "examples" / "digits", directory)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    blocks = _BLOCK.findall((ROOT / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8"))
    program = directory / "page.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    run = subprocess.run([sys.executable, str(program)], cwd=directory, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
