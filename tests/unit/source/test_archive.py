"""Tests for rejecting a file that is not the declared kind of archive, before it is loaded."""

from __future__ import annotations

import contextlib
import os
import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from repogen.errors import SourceError
from repogen.source.common.formats import ArchiveKind, check_archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class _Bomb(nn.Module):
    """Creates a file when unpickled."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def rejected(path: Path, kind: ArchiveKind) -> SourceError:
    """Return the error for an invalid file."""
    with pytest.raises(SourceError) as caught:
        check_archive(path, kind)
    assert caught.value.code == "source.archive"
    assert caught.value.message.startswith(path.name)
    return caught.value


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_valid_archives_pass(tmp_path: Path) -> None:
    """The file name does not matter."""
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "script.bin")
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "program.pt2")
    check_archive(tmp_path / "script.bin", "torchscript")
    check_archive(tmp_path / "program.pt2", "torch_export")
    assert "use kind: torchscript" in rejected(tmp_path / "script.bin", "torch_export").hint
    assert "use kind: torch_export" in rejected(tmp_path / "program.pt2", "torchscript").hint


@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_is_not_loaded(tmp_path: Path, *, zipped: bool) -> None:
    """A module written by torch.save is a pickle, which could run code."""
    mark, path = tmp_path / "ran", tmp_path / "model.pt"
    torch.save(_Bomb(mark), path, _use_new_zipfile_serialization=zipped)
    for kind in ("torchscript", "torch_export"):
        error = rejected(path, kind)
        assert ("a torch.save file" if zipped else "a pickle") in error.message
        assert "run" in error.hint
    path.write_bytes(pickle.dumps(_Bomb(mark)))
    rejected(path, "torchscript")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 and no more", "is a truncated zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer, not the file itself"),
        (b"<html>", "is a web page, not a TorchScript archive"),
        (b"\x00\x01\x02", "is in an unknown format, not a TorchScript archive"),
    ],
)
def test_other_formats_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    """Every error has a hint."""
    (tmp_path / "model.pt").write_bytes(content)
    error = rejected(tmp_path / "model.pt", "torchscript")
    assert error.message == f"model.pt {message}"
    assert error.hint


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    """The file may be deleted after the spec was loaded."""
    assert "cannot be read" in rejected(tmp_path / "model.pt", "torchscript").message


@pytest.mark.parametrize("offset", [6, 8, 10, 28, 42, 46])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_damaged_headers(tmp_path: Path, offset: int) -> None:
    """An archive whose headers cannot be read is reported as truncated, or by its remaining members."""
    path = tmp_path / "model.pt"
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), path)
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 8 : at + 10] = b"\x00\x08"  # the name is UTF-8
    content[at + offset : at + offset + 2] = b"\xff\xff"
    path.write_bytes(content)
    with contextlib.suppress(SourceError):
        check_archive(path, "torch_export")
