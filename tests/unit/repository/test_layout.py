"""Version numbers as Triton reads them off directory names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import PublishError
from repogen.repository.layout import latest_version, next_version, versions

if TYPE_CHECKING:
    from pathlib import Path


def test_only_plain_numbers_are_versions(tmp_path: Path) -> None:
    """Numbers sort as numbers; `0`, `01`, names with a tail and files are no versions of ours."""
    for name in ("10", "9", "0", "01", "2.tmp-a", "x3", "-4", "\u0661"):
        (tmp_path / name).mkdir()
    (tmp_path / "7").touch()
    assert versions(tmp_path) == [9, 10]
    assert latest_version(tmp_path) == 10


def test_no_model(tmp_path: Path) -> None:
    """Where no model is, the next version is 1."""
    assert versions(tmp_path / "m") == []
    assert latest_version(tmp_path / "m") is None
    assert next_version(tmp_path / "m") == 1


@pytest.mark.parametrize(
    ("name", "expected"), [("2.tmp-abc", 3), ("0007", 8), (" 5", 6), ("+4", 5), ("-9", 1), ("x9", 1), ("0", 1)]
)
def test_next_steps_over_what_triton_reads(tmp_path: Path, name: str, expected: int) -> None:
    """What std::stoll makes of a directory's name is a number spent."""
    (tmp_path / name).mkdir()
    assert next_version(tmp_path) == expected


def test_files_count_only_by_their_whole_name(tmp_path: Path) -> None:
    """A file named like a version would be in its way; one that only starts with a number is not."""
    (tmp_path / "3").touch()
    (tmp_path / "2024-notes.txt").touch()
    assert next_version(tmp_path) == 4


@pytest.mark.parametrize("name", ["9223372036854775807", "99999999999999999999"])
def test_overflow(tmp_path: Path, name: str) -> None:
    """A number that leaves none above it is reported, not wrapped around."""
    (tmp_path / name).mkdir()
    with pytest.raises(PublishError, match="cannot count beyond"):
        next_version(tmp_path)
