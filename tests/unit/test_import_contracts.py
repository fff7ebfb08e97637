"""The import contracts cover every module of the package, also those that are added later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ["torch", "transformers", "mlflow", "tritonclient", "onnxruntime", "onnxsim"]


@pytest.fixture
def broken_contracts(tmp_path: Path) -> Callable[[], set[str]]:
    """Return a function that checks ``tmp_path/repogen``, a copy of the package, and returns the broken contracts."""
    shutil.copytree(ROOT / "repogen", tmp_path / "repogen", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def broken() -> set[str]:
        run = subprocess.run(
            [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in run.stdout.splitlines() if " BROKEN" in line]
        assert (run.returncode != 0) is bool(lines), run.stdout + run.stderr
        return {line.partition(" BROKEN")[0] for line in lines}

    return broken


def test_new_module_may_not_import_a_large_library(tmp_path: Path, broken_contracts: Callable[[], set[str]]) -> None:
    """The contracts have no list of modules that a new one could be missing from."""
    imports = "".join(f"import {library}\n" for library in LIBRARIES)
    (tmp_path / "repogen" / "build" / "planted.py").write_text(imports, encoding="utf-8")
    assert broken_contracts() == {
        "torch is imported where models are run",
        "mlflow is imported in one module, and in the plug-in that it imports",
        "tritonclient is imported where config.pbtxt is parsed and requests are sent",
        "onnxruntime and onnxsim are imported where graphs are run",
    }


def test_new_package_needs_a_layer(tmp_path: Path, broken_contracts: Callable[[], set[str]]) -> None:
    """A module that is in no layer breaks the contract of the layers."""
    (tmp_path / "repogen" / "planted.py").touch()
    assert broken_contracts() == {"Packages import downwards only, and every package is in the list"}
