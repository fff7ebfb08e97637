"""Tests for identifying files by their content before a loader reads them."""

from __future__ import annotations

import gzip
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from repogen.errors import SourceError
from repogen.source.common.formats import check_format

if TYPE_CHECKING:
    from pathlib import Path

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab12\nsize 90000\n"


def rejected(path: Path) -> SourceError:
    """Return the error for an invalid file."""
    with pytest.raises(SourceError) as caught:
        check_format(path)
    assert caught.value.message.startswith(path.name)
    assert caught.value.code == "source.weights-format"
    return caught.value


@pytest.mark.parametrize(
    ("content", "kind", "hint"),
    [
        (b"weights go here\n", "a text file", "save_file"),
        ("\u00e9".encode() * 2000, "a text file", "save_file"),
        (b"<!DOCTYPE html><title>Sign in</title>", "a web page", "download the file again"),
        (b"", "empty", "save it again"),
        (gzip.compress(b"x", mtime=0), "a gzip file", "save_file"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "save_file"),
        (b"GGUF\x03", "a GGUF file", "save_file"),
        (b"\x00\x01\xff\xfe" * 300, "in an unknown format", "save_file"),
        (b"PK\x03\x04 and no more", "a truncated zip archive", "save it again"),
    ],
)
@pytest.mark.parametrize(("name", "declared"), [("w.pt", "a torch.save file"), ("w.safetensors", "a safetensors file")])
def test_file_that_is_not_weights_is_identified(
    tmp_path: Path, name: str, declared: str, content: bytes, kind: str, hint: str
) -> None:
    """The message has both formats, and the hint says what to do."""
    (tmp_path / name).write_bytes(content)
    error = rejected(tmp_path / name)
    assert error.message == f"{name} is {kind}, not {declared}"
    assert hint in error.hint


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_git_lfs_pointer_is_identified(tmp_path: Path, name: str) -> None:
    """A clone without Git LFS contains pointers instead of weights."""
    (tmp_path / name).write_bytes(POINTER)
    error = rejected(tmp_path / name)
    assert error.message == f"{name} is a Git LFS pointer, not the file itself"
    assert error.hint == "download the file: git lfs pull"


def test_swapped_file_names_are_detected(tmp_path: Path) -> None:
    """The hint is to rename the file."""
    state = nn.Linear(2, 1).state_dict()
    save_file(state, tmp_path / "w.pt")
    torch.save(state, tmp_path / "v.safetensors")
    assert rejected(tmp_path / "w.pt").hint == "rename it to w.safetensors"
    assert rejected(tmp_path / "v.safetensors").hint == "rename it to v.pt"


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_other_archives_are_identified(tmp_path: Path) -> None:
    """TorchScript (with a hint to extract its weights), torch.export and NumPy."""
    torch.jit.script(nn.Linear(2, 1)).save(tmp_path / "script.pt")  # type: ignore[no-untyped-call]
    error = rejected(tmp_path / "script.pt")
    assert error.message == "script.pt is a TorchScript archive, not a torch.save file"
    assert "torch.save(torch.jit.load('script.pt').state_dict(), 'weights.pt')" in error.hint
    program = torch.export.export(nn.Linear(2, 1), (torch.ones(1, 2),))
    torch.export.save(program, tmp_path / "program.pt2")
    (tmp_path / "program.pt2").rename(tmp_path / "program.pt")
    assert "program.pt is a torch.export program" in rejected(tmp_path / "program.pt").message
    with (tmp_path / "arrays.pt").open("wb") as file:
        np.savez(file, weight=np.ones(2))
    assert "arrays.pt is a NumPy archive" in rejected(tmp_path / "arrays.pt").message


def test_weights_files_pass(tmp_path: Path) -> None:
    """Both formats of torch.save and safetensors are accepted."""
    state = nn.Linear(2, 1).state_dict()
    torch.save(state, tmp_path / "new.pth")
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({}))  # the loader checks the content
    save_file(state, tmp_path / "w.safetensors")
    for path in tmp_path.iterdir():
        check_format(path)
