"""A file that is not the archive that the spec says it is, is named before anything is loaded."""

from __future__ import annotations

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
    """Writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def refused(path: Path, kind: ArchiveKind) -> SourceError:
    """Return the error of a file that must be refused."""
    with pytest.raises(SourceError) as caught:
        check_archive(path, kind)
    assert caught.value.code == "source.archive"
    assert caught.value.message.startswith(path.name)
    return caught.value


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_right_archive_passes(tmp_path: Path) -> None:
    """Whatever it is called."""
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "script.bin")
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "program.pt2")
    check_archive(tmp_path / "script.bin", "torchscript")
    check_archive(tmp_path / "program.pt2", "torch_export")
    assert "write kind: torchscript" in refused(tmp_path / "script.bin", "torch_export").hint
    assert "write kind: torch_export" in refused(tmp_path / "program.pt2", "torchscript").hint


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_bomb_does_not_go_off(tmp_path: Path, *, zipped: bool) -> None:
    """A module that torch.save wrote is a pickle; it is named and not loaded."""
    mark, path = tmp_path / "ran", tmp_path / "model.pt"
    torch.save(_Bomb(mark), path, _use_new_zipfile_serialization=zipped)
    for kind in ("torchscript", "torch_export"):
        error = refused(path, kind)
        assert ("a file of torch.save" if zipped else "a pickle") in error.message
        assert "run" in error.hint
    path.write_bytes(pickle.dumps(_Bomb(mark)))
    refused(path, "torchscript")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 and no more", "is a zip archive that is cut short"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a git-LFS pointer, not the weights that it stands for"),
        (b"<html>", "is a web page, not a TorchScript archive"),
        (b"\x00\x01\x02", "is nothing that repogen knows, not a TorchScript archive"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: bytes, what: str) -> None:
    """With a remedy each."""
    (tmp_path / "model.pt").write_bytes(content)
    error = refused(tmp_path / "model.pt", "torchscript")
    assert error.message == f"model.pt {what}"
    assert error.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It may have gone since the spec was read."""
    assert "cannot be read" in refused(tmp_path / "model.pt", "torchscript").message
