"""A virtual environment with repogen and the example plug-in, for tests that run the real command in it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "plugin_package"


def make_plugin_environment(directory: Path) -> Path:
    """Make the environment; return the path of its Python.

    What this interpreter has installed is used from there; only the plug-in is installed in the new environment.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    paths = [sysconfig.get_path("purelib"), str(Path(__file__).resolve().parents[2])]
    site = Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))
    lines = [f"import site; site.addsitedir({path!r})" for path in reversed(paths)]
    (site / "000_outer.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*command, "--quiet", "--no-deps", "--no-build-isolation", str(PACKAGE)], check=True)
    return python
