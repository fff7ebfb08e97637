"""Tests the package as users install it: a wheel and an editable checkout in environments of their own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = {
    "repogen/py.typed",
    "repogen/data/triton_releases.csv",
    "repogen/data/accelerator_parameters.csv",
    "repogen/data/embedded.lock.json",
    "repogen/data/model_config_fields.csv",
    "repogen/serving/supervisor.py",
    "repogen/serving/onnxruntime_backend/model.py",
    "repogen/_templates/config.pbtxt.j2",
    "repogen/_templates/init/repogen.yaml",
    "repogen/_templates/init/models.py",
}


def pip(*arguments: str) -> None:
    """Run this environment's pip; print its output when it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel without network access."""
    directory = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(ROOT))
    (path,) = directory.glob("*.whl")
    return path


def fresh_environment(directory: Path) -> Path:
    """Return the Python of a new environment with repogen's dependencies but without repogen."""
    venv.create(directory, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A directory named in a .pth file is searched, but the .pth files in it (that of our editable install) are not.
    dependencies = directory / "lib" / version / "site-packages" / "dependencies.pth"
    dependencies.write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = directory / "bin" / "python"
    absent = subprocess.run([python, "-c", "import repogen.cli"], cwd=directory, capture_output=True, check=False)
    assert b"ModuleNotFoundError" in absent.stderr
    return python


def test_wheel_contains_the_data_files(wheel: Path) -> None:
    """Templates, tables, the lock, the backend and py.typed are in the wheel; tests and examples are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    missing_files: set[str] = set()
    assert missing_files == DATA - names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"repogen", "triton_repogen"}


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_installed_package_finds_its_templates(wheel: Path, tmp_path: Path, kind: str) -> None:
    """`repogen init` writes the checkout's templates, and the config template exists."""
    python = fresh_environment(tmp_path / "environment")
    what = [str(wheel)] if kind == "wheel" else ["--no-build-isolation", "--editable", str(ROOT)]
    # the metadata in this environment must not be mistaken for an installed distribution
    pip("--python", str(python), "install", "--no-deps", "--ignore-installed", *what)
    command = python.with_name("repogen")
    init = subprocess.run([command, "init", "new"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (init.returncode, init.stderr) == (0, "")
    for name in ("repogen.yaml", "models.py"):
        assert (tmp_path / "new" / name).read_bytes() == (ROOT / "templates" / "init" / name).read_bytes()
    script = "from repogen.resources import templates_dir; print(templates_dir())"
    result = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    directory = Path(result.stdout.strip())
    assert (directory / "config.pbtxt.j2").is_file()
    assert directory.is_relative_to(tmp_path if kind == "wheel" else ROOT)
