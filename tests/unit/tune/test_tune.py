"""What decides whether the trials of an earlier run are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.tune.tune import _has_other_trials

if TYPE_CHECKING:
    from pathlib import Path


def test_trials_of_another_search_are_noticed(tmp_path: Path) -> None:
    """Those of a model whose name begins in the same way are not."""
    path = tmp_path / "tune" / f"digits-{'0' * 16}.db"
    assert not _has_other_trials(path, "digits")
    path.parent.mkdir()
    for name in (f"digits-cnn-{'1' * 16}.db", f"digits-{'1' * 16}.lock"):
        path.with_name(name).touch()
        assert not _has_other_trials(path, "digits")
    path.with_name(f"digits-{'1' * 16}.db").touch()
    assert _has_other_trials(path, "digits")
