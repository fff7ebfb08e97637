"""The tutorial in the docs, executed as written: its files, commands and results."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
_FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_BRANCH = re.compile(r"^```python\n(    def forward.*?)^```$", re.MULTILINE | re.DOTALL)


_MEASURED = re.compile(r"[0-9.]+e-[0-9]+|(?<=p50 )[0-9.]+|(?<= )[0-9]+\.[0-9]+(?=\n)")
"""Figures that depend on the machine: differences, latencies and seconds."""


def stable(text: str) -> str:
    """Return a text without its measured figures, and without the widths of the columns that depend on them."""
    return re.sub(r" +|-{2,}", " ", _MEASURED.sub("#", text))


def repogen(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory."""
    command = [sys.executable, "-m", "repogen", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_the_tutorial(tmp_path: Path) -> None:
    """Train, build, build again, serve, send a request, and break the model."""
    page = PAGE.read_text(encoding="utf-8")
    for name, text in _FILE.findall(page):
        (tmp_path / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True)

    first = repogen(tmp_path, "build")
    assert first.returncode == 0, first.stderr
    assert stable(f"$ repogen build\n{first.stdout}") in stable(page)
    again = repogen(tmp_path, "build")
    assert stable(f"$ repogen build\n{again.stdout}") in stable(page)

    command = [sys.executable, "-m", "repogen", "serve"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            lines = list(takewhile(lambda line: line != "press Ctrl-C to stop\n", server.stdout))
            addresses = dict(line.split() for line in lines[1:4])
            client = [sys.executable, "client.py", addresses["gRPC"]]
            answer = subprocess.run(client, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        finally:
            server.terminate()
    assert answer.strip() in page
    output = "".join(lines)
    for service, port in {"gRPC": 8001, "HTTP": 8000, "metrics": 8002}.items():
        output = output.replace(addresses[service], f"127.0.0.1:{port}")
    assert f"$ repogen serve\n{output}press Ctrl-C to stop\n```" in page

    shutil.copy(tmp_path / "models.py", tmp_path / "before.py")
    before = "    def forward(self, image: torch.Tensor) -> torch.Tensor:\n        return self.layers(image)\n"
    models = (tmp_path / "models.py").read_text(encoding="utf-8")
    assert before in models
    branch = _BRANCH.findall(page)[0]
    (tmp_path / "models.py").write_text(models.replace(before, branch), encoding="utf-8")
    broken = repogen(tmp_path, "build")
    assert broken.returncode == 3
    assert stable(f"$ repogen build\n{broken.stdout}") in stable(page)
    assert (tmp_path / "model_repository" / "digits" / "1" / "model.onnx").is_file()
