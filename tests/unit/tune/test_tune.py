"""What decides whether the trials of an earlier run are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.tune.tune import _is_unexpected

if TYPE_CHECKING:
    from pathlib import Path


def test_trials_of_another_search_are_noticed(tmp_path: Path) -> None:
    """Those of a model whose name begins in the same way are not."""
    path = tmp_path / "tune" / f"digits-{'0' * 16}.db"
    assert not _is_unexpected(path, "digits", restart=False)
    path.parent.mkdir()
    for name in (f"digits-cnn-{'1' * 16}.db", f"digits-{'1' * 16}.lock"):
        path.with_name(name).touch()
        assert not _is_unexpected(path, "digits", restart=False)
    path.with_name(f"digits-{'1' * 16}.db").touch()
    assert _is_unexpected(path, "digits", restart=False)
    assert not _is_unexpected(path, "digits", restart=True)
    path.touch()
    assert not _is_unexpected(path, "digits", restart=False)
