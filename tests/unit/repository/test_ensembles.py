"""The models that an ensemble's steps name, as Triton serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import ConfigError
from repogen.repository.ensembles import neighbor_at

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("", (3,)), ("version_policy { }", (3, 2, 1)), ("version_policy { specific { versions: [ 1, 7 ] } }", (1,))],
)
def test_neighbor_has_the_versions_that_are_served(tmp_path: Path, policy: str, expected: tuple[int, ...]) -> None:
    """A step pinned to a version that exists but is not served does not load."""
    for version in ("1", "2", "3"):
        (tmp_path / "m" / version).mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(policy, encoding="utf-8")
    assert neighbor_at(tmp_path / "m").versions == expected


@pytest.mark.parametrize("content", [b"\xff", b" " * (2**20 + 1), b"{"])
def test_neighbor_with_a_damaged_config(tmp_path: Path, content: bytes) -> None:
    """It is one error of the model that is synced or built, not the end of all of them."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_bytes(content)
    with pytest.raises(ConfigError):
        neighbor_at(tmp_path / "m")
