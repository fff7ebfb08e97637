"""A directory with specs, and a function that returns all problems of a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.spec.load import load_spec
from repogen.spec.problems import SpecProblemsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with the files that the specs of these tests name."""
    (tmp_path / "models.py").write_text("".join(f"def {name}(): ...\n" for name in ("build", "e", "examples", "texts")))
    (tmp_path / "weights.pt").write_bytes(b"")
    (tmp_path / "templates").mkdir()
    return tmp_path


@pytest.fixture
def problems(folder: Path) -> Callable[[str | bytes], list[tuple[str, str, str]]]:
    """Return a function from a spec's text to position, key path and text (hint in parentheses) of each problem."""

    def load(text: str | bytes) -> list[tuple[str, str, str]]:
        path = folder / "repogen.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(SpecProblemsError) as caught:
            load_spec(path)
        return [
            (f"{p.line}:{p.column}", p.key_path, f"{p.what} ({p.hint})" if p.hint else p.what)
            for p in caught.value.problems
        ]

    return load
