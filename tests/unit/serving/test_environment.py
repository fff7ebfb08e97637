"""The Python of the models' own code: a virtual environment for each server, and what its models require."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.errors import ServerError
from repogen.serving import environment, install
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.serving.install import Installation


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    """Return where an embedded Triton would lie, with a directory of packages that holds one module."""
    found = install.locate(targets()[DEFAULT_RELEASE].onnxruntime, tmp_path / "cache")
    found.site.mkdir(parents=True)
    (found.site / "in_the_site.py").touch()
    return found


def run(run_dir: Path, code: str) -> str:
    """Run code with the server's Python, as the stub is: isolated."""
    done = subprocess.run([run_dir / "bin" / "python3", "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_has_the_servers_packages_and_no_others(installation: Installation, tmp_path: Path) -> None:
    """Not those of the Python that it is made of, whose NumPy may be any; and it leaves no bytecode beside models."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()

    environment.lay_out(installation, run_dir)

    assert run(run_dir, "import in_the_site, sys; print(sys.prefix, sys.dont_write_bytecode)") == f"{run_dir} True"
    assert not [line for line in run(run_dir, "import sys; print(*sys.path, sep='\\n')").splitlines() if _foreign(line)]
    assert (run_dir / "lib" / f"libpython{installation.python.version}.so.1.0").is_symlink()


def _foreign(line: str) -> bool:
    return line.endswith("site-packages") and "run/lib" not in line


def test_what_a_repositorys_code_requires_is_found(tmp_path: Path) -> None:
    """Comments and empty lines are none; a requirements.txt beside a graph is none of ours."""
    code, graph = tmp_path / "code" / "1", tmp_path / "graph" / "1"
    for directory, file in ((code, "model.py"), (graph, "model.onnx")):
        directory.mkdir(parents=True)
        (directory / file).touch()
        (directory / "requirements.txt").write_text(f"# {file}\n\na==1\n  b==2.0\n")

    assert environment.required_by(tmp_path) == ["a==1", "b==2.0"]


def test_what_is_not_pinned_is_refused(installation: Installation, tmp_path: Path) -> None:
    """And so is what would be an option of pip's."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    environment.lay_out(installation, run_dir)

    for line in ("numpy", "--index-url=http://x", "a @ http://x", "-r other.txt"):
        with pytest.raises(ServerError, match="is not pinned"):
            environment.provide(installation, run_dir, [line], Silent())


def test_what_cannot_be_had_is_told(installation: Installation, tmp_path: Path) -> None:
    """With pip's own words; nothing half-installed is left."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    environment.lay_out(installation, run_dir)

    with pytest.raises(ServerError, match=r"(?s)pip could not install no-such-package-at-all==1.*No matching"):
        environment.provide(installation, run_dir, ["no-such-package-at-all==1"], Silent())

    assert not list(installation.root.glob("packages-*"))
