"""The distributions whose code a build imported are recorded, and no others."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from repogen.worker.imports import imported_code

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def _install(site: Path, distribution: str, module: str) -> None:
    """Write a distribution with one module in the namespace package ``shared_space``."""
    package = site / "shared_space"
    package.mkdir(parents=True, exist_ok=True)
    (package / f"{module}.py").write_text("")
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"shared_space/{module}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


def test_only_the_imported_part_of_a_namespace_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing another package into the same namespace does not change the build."""
    site = tmp_path / "site-packages"
    _install(site, "imported-part", "first")
    _install(site, "other-part", "second")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "shared_space", raising=False)
    importlib.import_module("shared_space.first")
    try:
        distributions = imported_code(tmp_path).distributions
    finally:
        for name in ("shared_space.first", "shared_space"):
            sys.modules.pop(name, None)

    assert distributions["imported-part"] == "1.0"
    assert "other-part" not in distributions
