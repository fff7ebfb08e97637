"""Fixtures: a directory of user code that is removed from ``sys.modules`` after the test."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

HEADER = "import torch\nfrom torch import nn\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a spec's directory; modules imported from it are removed afterward."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.delitem(sys.modules, "models", raising=False)  # of a test of another directory: messages name modules
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def load(root: Path) -> Callable[..., SourceModel]:
    """Return a function that loads a source from the code of a module and spec keys; the factory is ``build``."""

    def loaded(code: str, **spec: Any) -> SourceModel:
        (root / "models.py").write_text(HEADER + textwrap.dedent(code), encoding="utf-8")
        source = {"factory": "models.py:build", **spec.pop("source", {})}
        spec.setdefault("inputs", {"x": {"dtype": "float32", "shape": ["batch", 4]}} if "examples" not in spec else {})
        spec.setdefault("dims", {"batch": {"max": 8}} if spec["inputs"] else {})
        return load_source(ModelSpec.model_validate({"source": source, **spec}), root)

    return loaded
