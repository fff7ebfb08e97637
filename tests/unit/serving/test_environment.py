"""The environment of processes that run code which is not repogen's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.serving.environment import private_places

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("variable", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
def test_caches_in_which_other_users_can_create_files_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """PyTorch runs what is in them; a cache of the user's own is kept."""
    cache, private = tmp_path / "cache", tmp_path / "private"
    temporary = {"TMPDIR": str(private)}
    for unset in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(unset, raising=False)
    assert private_places(private) == temporary
    monkeypatch.setenv(variable, str(cache))
    assert private_places(private) == temporary
    monkeypatch.setenv(variable, "cache")
    assert private_places(private) == temporary | {variable: str(private / variable.lower())}
    monkeypatch.setenv(variable, str(cache))
    cache.mkdir()
    assert private_places(private) == temporary
    for mode in (0o1777, 0o777):
        cache.chmod(mode)
        assert private_places(private) == temporary | {variable: str(private / variable.lower())}
    monkeypatch.setenv(variable, str(cache / "missing"))
    assert private_places(private) == temporary | {variable: str(private / variable.lower())}
