"""Hostile ``.npz`` files are rejected with a reason, before memory is allocated for them."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from repogen.errors import SourceError
from repogen.files.content import ContentError
from repogen.files.npz import read_npz
from repogen.source.common.examples import load_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt


def test_fifo_and_sparse_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO would block; a sparse file needs no disk space, but as much memory as it claims to have."""
    os.mkfifo(tmp_path / "fifo.npz")
    with pytest.raises(OSError, match="not a regular file"):
        read_npz(tmp_path / "fifo.npz")
    content = npz(a=np.zeros(2**22, np.uint8))
    before, zeros, after = content.partition(bytes(2**22))
    with (tmp_path / "sparse.npz").open("wb") as stream:
        stream.write(before)
        stream.seek(len(zeros), os.SEEK_CUR)
        stream.write(after)
    assert read_npz(tmp_path / "sparse.npz")["a"].size == 2**22
    monkeypatch.setattr("repogen.files.content._MAX_HOLES", 2**20)
    with pytest.raises(OSError, match="sparse"):
        read_npz(tmp_path / "sparse.npz")


def npz(**arrays: npt.ArrayLike) -> bytes:
    """Return a valid file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type] # no key is allow_pickle
    return buffer.getvalue()


def archive(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive; names may be equal."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as opened:
        for name, content in members:
            opened.writestr(name, content)
    return buffer.getvalue()


def npy(shape: str, descriptor: str = "'<f4'", data: bytes = bytes(24), version: bytes = b"\x01\x00") -> bytes:
    """Return an array file with any header."""
    header = f"{{'descr': {descriptor}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    width = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + version + len(header).to_bytes(width, "little") + header + data


def patched(content: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """Return an archive with another value in each of its headers of one kind."""
    changed = bytearray(content)
    for at in range(len(content)):
        if content.startswith(signature, at):
            changed[at + offset : at + offset + len(value)] = value
    return bytes(changed)


CENTRAL, LOCAL = b"PK\x01\x02", b"PK\x03\x04"
VALID = npz(x=np.ones((2, 3), np.float32))
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a zip archive"),
    "truncated": (lambda: VALID[:100], "not a zip archive"),
    "encrypted": (lambda: patched(patched(VALID, CENTRAL, 8, b"\x01\x00"), LOCAL, 6, b"\x01\x00"), "is encrypted"),
    "unknown compression": (lambda: patched(VALID, CENTRAL, 10, b"\x63\x00"), "neither stored nor deflated"),
    "bzip2": (lambda: archive(("x.npy", npy("(2, 3)")), compression=zipfile.ZIP_BZIP2), "neither stored nor deflated"),
    "lzma": (lambda: archive(("x.npy", npy("(2, 3)")), compression=zipfile.ZIP_LZMA), "neither stored nor deflated"),
    "a version that no tool writes": (lambda: patched(VALID, CENTRAL, 6, b"\x63\x00"), "not a zip archive"),
    "a declared size of 4 GiB": (lambda: patched(VALID, CENTRAL, 24, b"\xfe\xff\xff\xff"), "more than 2 GiB"),
    "a smaller size than stored": (lambda: patched(VALID, CENTRAL, 24, b"\x90\x00\x00\x00"), "damaged|does not match"),
    "a wrong checksum": (lambda: patched(VALID, CENTRAL, 16, b"\0\0\0\0"), "damaged"),
    "a name that is not UTF-8": (
        lambda: patched(patched(archive(("xxxxx", b"")), CENTRAL, 8, b"\x00\x08"), CENTRAL, 46, b"\xff\xff"),
        "not a zip archive",
    ),
    "two members of one name": (
        lambda: archive(("x.npy", npy("(2, 3)")), ("x.npy", npy("(3, 2)"))),
        "two members of the same name",
    ),
    "a text file": (lambda: archive(("readme.txt", b"text")), "not an array"),
    "objects": (lambda: npz(x=np.array([{"a": 1}], dtype=object)), "Python objects"),
    "a structured dtype": (lambda: archive(("x.npy", npy("(3,)", "[('a', '<f8')]"))), "only numbers and strings"),
    "a huge shape": (lambda: archive(("x.npy", npy("(1099511627776,)"))), "does not match its 24 bytes"),
    "a shape that overflows": (lambda: archive(("x.npy", npy("(4294967296, 4294967296)"))), "does not match"),
    "a negative shape": (lambda: archive(("x.npy", npy("(-6,)"))), "does not match"),
    "a shape of 400 digits": (lambda: archive(("x.npy", npy(f"({'9' * 400},)"))), "does not match"),
    "a shape of 5000 digits": (lambda: archive(("x.npy", npy(f"({'9' * 5000},)"))), "header cannot be read"),
    "no elements, and a huge dim": (lambda: archive(("x.npy", npy(f"(0, {2**62})", data=b""))), "not supported"),
    "70 dims": (lambda: archive(("x.npy", npy(f"(6{', 1' * 70})"))), "not supported"),
    "a deeply nested header": (lambda: archive(("x.npy", npy("-" * 3000 + "1"))), "header cannot be read"),
    "an unfinished header": (lambda: archive(("x.npy", npy("(" * 300))), "header cannot be read"),
    "a header without keys": (lambda: archive(("x.npy", b"\x93NUMPY\x01\x00\x02\x00{}")), "header cannot be read"),
    "an unknown version": (lambda: archive(("x.npy", npy("(6,)", version=b"\x09\x00"))), "header cannot be read"),
    "items of 400 MB": (lambda: archive(("x.npy", npy("(1,)", "'<U99999999'"))), "does not match"),
    "items of no bytes": (lambda: archive(("x.npy", npy(f"({2**62},)", "'|S0'", b""))), "only numbers and strings"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_rejected(tmp_path: Path, name: str) -> None:
    """Every kind of damage has a reason in the message."""
    content, reason = HOSTILE[name]
    (tmp_path / "e.npz").write_bytes(content())
    with pytest.raises(SourceError, match=reason) as caught:
        load_data(tmp_path / "e.npz")
    assert caught.value.code == "source.npz"
    assert caught.value.message.startswith("e.npz cannot be read as .npz: it ")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int8).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["a", "éé"]),
        np.array([b"a", b"bc"]),
        np.array(1.5, np.float16),
        np.zeros((0, 3), ">i4"),
        np.array([True, False]),
    ],
)
def test_arrays_are_read_as_numpy_writes_them(tmp_path: Path, array: Any) -> None:
    """Dtype, shape and values are unchanged, and the arrays can be changed, as PyTorch requires."""
    np.savez_compressed(tmp_path / "e.npz", x=array)
    read = load_data(tmp_path / "e.npz")["x"]
    assert (read.dtype, read.shape, read.flags.writeable) == (array.dtype, array.shape, True)
    assert np.array_equal(read, array)


def test_array_needs_its_memory_once(tmp_path: Path) -> None:
    """The golden tensors of a hostile entry may have the largest size that is read."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(2**22, np.uint8))
    tracemalloc.start()
    try:
        array = read_npz(path)["x"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (array.shape, array.flags.writeable) == ((2**22,), True)
    assert peak < 1.7 * 2**22


def test_arrays_that_repogen_did_not_compress_fit_into_the_file(tmp_path: Path) -> None:
    """A file of a few kilobytes cannot need gigabytes."""
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(2**20, np.uint8))
    assert read_npz(path)["x"].size == 2**20
    with pytest.raises(ContentError, match="contains arrays of more than"):
        read_npz(path, compressed=False)


def test_header_of_python_2_is_rejected(tmp_path: Path) -> None:
    """NumPy reads it with a tokenizer in Python: 20 ms for 10 kB, and a file can have 100,000 of them."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0L,)}\n"
    with zipfile.ZipFile(tmp_path / "old.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ContentError, match="written with Python 2"):
        read_npz(tmp_path / "old.npz")
