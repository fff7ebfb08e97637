"""Version numbers that Triton reads from directory names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import PublishError
from repogen.repository.layout import latest_version, next_version, triton_version, triton_versions, versions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("7", 7), ("0", 0), ("5x", 5), ("2.tmp-abc", 2), ("+3", 3), (" 4", 4), ("\t4", 4), ("1 ", 1), ("1e3", 1)),
        *(("-2", -2), ("-0", 0), ("9" * 20, 99999999999999999999)),
        *(("01", None), ("007", None), ("00", None), ("0x1", None), ("v2", None), ("tmp", None), ("\u0661", None)),
    ],
)
def test_number_that_triton_reads(name: str, expected: int | None) -> None:
    """The number that std::stoll reads, except for names with a leading zero; tests/integration tests the server."""
    assert triton_version(name) == expected


def test_versions_are_directories_named_by_their_number(tmp_path: Path) -> None:
    """They are sorted as numbers; Triton also reads numbers of names that it cannot load, but not of files."""
    for name in ("10", "9", "0", "01", "2.tmp-a", "x3", "-4", "\u0661", "9" * 20):
        (tmp_path / name).mkdir()
    (tmp_path / "7").touch()
    assert triton_versions(tmp_path) == [-4, 0, 2, 9, 10]
    assert versions(tmp_path) == [0, 9, 10]
    assert latest_version(tmp_path) == 10


def test_no_model(tmp_path: Path) -> None:
    """The first version of a model is 1."""
    assert versions(tmp_path / "m") == []
    assert latest_version(tmp_path / "m") is None
    assert next_version(tmp_path / "m") == 1


@pytest.mark.parametrize(
    ("name", "expected"), [("2.tmp-abc", 3), ("0007", 1), (" 5", 6), ("+4", 5), ("-9", 1), ("x9", 1), ("0", 1)]
)
def test_next_version_follows_the_numbers_that_triton_reads(tmp_path: Path, name: str, expected: int) -> None:
    """A number that Triton reads from a directory's name is not used again."""
    (tmp_path / name).mkdir()
    assert next_version(tmp_path) == expected


def test_only_a_file_named_like_a_version_counts(tmp_path: Path) -> None:
    """It would be in the way of that version; a file that only starts with a number is not."""
    (tmp_path / "3").touch()
    (tmp_path / "2024-notes.txt").touch()
    assert next_version(tmp_path) == 4


@pytest.mark.parametrize("name", ["9223372036854775807", "99999999999999999999"])
def test_overflow(tmp_path: Path, name: str) -> None:
    """The largest number is an error, and not wrapped around."""
    (tmp_path / name).mkdir()
    with pytest.raises(PublishError, match="no larger 64-bit version number"):
        next_version(tmp_path)
