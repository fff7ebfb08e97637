"""The tutorial in the docs, executed as written: its files, commands and results."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
_FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_BRANCH = re.compile(r"^```python\n(    def forward.*?)^```$", re.MULTILINE | re.DOTALL)


def repogen(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory."""
    command = [sys.executable, "-m", "repogen", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_the_tutorial(tmp_path: Path) -> None:
    """Train, build, build again, serve, send a request, and break the model."""
    page = PAGE.read_text(encoding="utf-8")
    for name, text in _FILE.findall(page):
        (tmp_path / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True)

    first = repogen(tmp_path, "build")
    assert first.returncode == 0, first.stderr
    assert "repogen called model.eval(); this affects layers.5" in first.stdout
    again = repogen(tmp_path, "build")
    assert re.search(r"^digits +unchanged +1 +32 ", again.stdout, re.MULTILINE)

    command = [sys.executable, "-m", "repogen", "serve"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = next(line.split()[1] for line in server.stdout if line.startswith("gRPC "))
            client = [sys.executable, "client.py", address]
            answer = subprocess.run(client, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        finally:
            server.terminate()
    assert answer.strip() in page

    shutil.copy(tmp_path / "models.py", tmp_path / "before.py")
    before = "    def forward(self, image: torch.Tensor) -> torch.Tensor:\n        return self.layers(image)\n"
    models = (tmp_path / "models.py").read_text(encoding="utf-8")
    assert before in models
    branch = _BRANCH.findall(page)[0]
    (tmp_path / "models.py").write_text(models.replace(before, branch), encoding="utf-8")
    broken = repogen(tmp_path, "build")
    assert broken.returncode == 3
    lines = [line for line in broken.stdout.splitlines() if line.startswith(("digits: error", "  dynamo", "  torchs"))]
    assert [line for line in lines if line not in page] == []
    assert (tmp_path / "model_repository" / "digits" / "1" / "model.onnx").is_file()
