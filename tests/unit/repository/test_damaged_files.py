"""Files compared with their manifest."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest

from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.named_file import data_file
from repogen.artifacts.tensors import Signature
from repogen.artifacts.versions import Manifest, Provenance
from repogen.repository import digest
from repogen.repository.digest import sha256_bytes, sha256_file
from repogen.repository.manifest import damaged_files, damaged_named_files, unlisted_files

if TYPE_CHECKING:
    from pathlib import Path

PROVENANCE = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)


def published(directory: Path, size: int) -> Manifest:
    """Write two files and return their manifest."""
    records = []
    for name in ("model.onnx", "model.onnx.data"):
        content = os.urandom(size)
        (directory / name).write_bytes(content)
        records.append(FileRecord(name, sha256_bytes(content), size))
    return Manifest("m", 0, Signature((), ()), tuple(records), PROVENANCE)


@pytest.mark.parametrize("size", [10, 5_000_000], ids=["small", "in threads"])
def test_each_kind_of_damage_is_reported(size: int, tmp_path: Path) -> None:
    """A flipped byte, a different size and a missing file, with one thread and with several."""
    manifest = published(tmp_path, size)
    assert damaged_files(tmp_path, manifest) == ()
    with (tmp_path / "model.onnx").open("r+b") as stream:
        first = stream.read(1)
        stream.seek(0)
        stream.write(bytes([first[0] ^ 1]))
    assert damaged_files(tmp_path, manifest) == ("model.onnx has a different sha256",)
    (tmp_path / "model.onnx").write_bytes(b"x")
    (tmp_path / "model.onnx.data").unlink()
    assert damaged_files(tmp_path, manifest) == (
        f"model.onnx has 1 bytes, not {size}",
        "model.onnx.data is missing",
    )


def test_unreadable_file_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that exists and cannot be read is reported, not raised as an OSError."""
    manifest = published(tmp_path, 10)

    def failing(path: Path, *_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("repogen.repository.digest.sha256_file", failing)
    assert damaged_files(tmp_path, manifest) == ("model.onnx cannot be read", "model.onnx.data cannot be read")


@pytest.mark.parametrize("size", [10, 5_000_000], ids=["small", "in threads"])
def test_file_is_not_damaged_if_too_many_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A sync would download it again, and a rollback would reject the version."""
    manifest = published(tmp_path, size)

    def full(path: Path) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(digest, "open_regular", full)
    with pytest.raises(OSError, match="Too many open files"):
        damaged_files(tmp_path, manifest)


def test_named_files_are_compared_in_the_model_s_directory(tmp_path: Path) -> None:
    """Their size is compared as well as their digest."""
    file = data_file("warmup", b"1234")
    records = (FileRecord(file.name, sha256_bytes(b"1234"), 4), FileRecord("model.onnx", "0" * 64, 1))
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / file.name).write_bytes(b"1234")
    assert damaged_named_files(tmp_path, records) == ()
    (tmp_path / "warmup" / file.name).write_bytes(b"12345")
    assert damaged_named_files(tmp_path, records) == (f"{file.name} has 5 bytes, not 4",)


def test_unlisted_files(tmp_path: Path) -> None:
    """They are damage where Python code could import them; Triton itself writes ``__pycache__``."""
    manifest = published(tmp_path, 10)
    for name in ("manifest.json", "unconfirmed", "torch.py", "notes.txt", "native.so"):
        (tmp_path / name).touch()
    for name in ("__pycache__", "numpy"):
        (tmp_path / name).mkdir()
    assert unlisted_files(tmp_path, manifest) == ("__pycache__/", "native.so", "notes.txt", "numpy/", "torch.py")
    assert damaged_files(tmp_path, manifest) == ()
    code = replace(manifest, provenance=replace(PROVENANCE, exporter="python"))
    assert damaged_files(tmp_path, code) == tuple(
        f"{name} is not listed in the manifest, and model.py could import it"
        for name in ("native.so", "numpy/", "torch.py")
    )


def test_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files may be readable."""
    manifest = published(tmp_path, 10)

    def failing(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", failing)
    assert damaged_files(tmp_path, manifest) == ("the directory cannot be read: Permission denied",)


def test_sparse_file_is_not_read(tmp_path: Path) -> None:
    """A manifest may list a file of terabytes, which needs no space on the disk."""
    manifest = published(tmp_path, 10)
    size = 2**42
    os.truncate(tmp_path / "model.onnx", size)
    files = (replace(manifest.files[0], size=size), manifest.files[1])
    (line,) = damaged_files(tmp_path, replace(manifest, files=files))
    assert line == "model.onnx cannot be read"


def test_file_with_some_holes_is_read(tmp_path: Path) -> None:
    """A copy may have holes in place of zeros."""
    file = tmp_path / "model.onnx"
    file.write_bytes(b"x" * 2**20)
    os.truncate(file, 2**20 + 2**22)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("repogen.files.content._MAX_HOLES", 2**22)
        assert sha256_file(file) == sha256_bytes(file.read_bytes())
        patch.setattr("repogen.files.content._MAX_HOLES", 2**21)
        with pytest.raises(OSError, match="sparse"):
            sha256_file(file)
