"""The servers of a deploy: options and file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.deploy.addresses import server_addresses
from repogen.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path


def test_file_has_one_address_per_line(tmp_path: Path) -> None:
    """Comments, empty lines, white space and Windows line ends are ignored; options come first."""
    file = tmp_path / "servers"
    file.write_bytes(b"# replicas\r\n\r\n  b:8001  # second\r\nunix:/run/triton:8001\n[::1]:8001")
    assert server_addresses(["a:8001"], file) == ("a:8001", "b:8001", "unix:/run/triton:8001", "[::1]:8001")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a:8001\nb\n", 2, "'b' is not the address"),
        ("a:8001\n\nb:8001\na:8001\n", 4, "a:8001 is given twice, first by"),
        ("http://a:8000\n", 1, "is not the address"),
        ("a:8001 b:8001\n", 1, "is not the address"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, text: str, line: int, message: str) -> None:
    """The message begins with FILE:LINE."""
    file = tmp_path / "servers"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=message) as caught:
        server_addresses([], file)
    assert caught.value.where == f"{file}:{line}"
    assert caught.value.message.startswith(f"{file}:{line}: ")


def test_address_of_an_option_is_checked() -> None:
    """The message names the option."""
    with pytest.raises(SpecError, match="--server: 'embedded' is not the address of a server"):
        server_addresses(["embedded"], None)


def test_no_server_is_an_error(tmp_path: Path) -> None:
    """Neither is a file of comments."""
    (tmp_path / "servers").write_text("# none\n", encoding="utf-8")
    with pytest.raises(SpecError, match="no server to deploy to"):
        server_addresses([], tmp_path / "servers")


def test_unusable_files_are_errors(tmp_path: Path) -> None:
    """A missing file, a FIFO, a binary file and one that is too large."""
    fifo, binary, large = tmp_path / "fifo", tmp_path / "binary", tmp_path / "large"
    os.mkfifo(fifo)
    binary.write_bytes(b"\xff\xfe")
    large.write_bytes(b"#" * (2**20 + 1))
    for file in (tmp_path / "missing", fifo, binary, large):
        with pytest.raises(SpecError, match="cannot be read: "):
            server_addresses([], file)


def test_number_of_servers_is_limited(tmp_path: Path) -> None:
    """A file of another kind is not read as thousands of servers."""
    file = tmp_path / "servers"
    file.write_text("".join(f"host-{number}:8001\n" for number in range(1001)), encoding="utf-8")
    with pytest.raises(SpecError, match="1001 servers"):
        server_addresses([], file)
