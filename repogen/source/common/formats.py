"""What a file is, by its first bytes: a wrong file is named before a loader stumbles over it."""

from __future__ import annotations

import contextlib
import zipfile
from typing import TYPE_CHECKING, Literal, TypeAlias

from repogen.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

ArchiveKind: TypeAlias = Literal["torchscript", "torch_export"]

_HEAD = 1024
_MOST_HEADER_BYTES = 100_000_000  # safetensors' own limit

_SAFETENSORS = "a safetensors file"
_TORCH = "a file of torch.save"
_PICKLE = "a pickle"
_SCRIPT = "a TorchScript archive"
_PROGRAM = "a program of torch.export"
_LFS = "a git-LFS pointer, not the weights that it stands for"
_PAGE = "a web page"
_ONNX = "an ONNX file"
_EMPTY = "empty"
_CUT = "a zip archive that is cut short"

_MAGIC = (
    (b"version https://git-lfs.github.com/spec/", _LFS),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "a gzip file"),
)
# The last part of a member's name, and what holds such a member; in this order.
_MEMBERS = (
    ("constants.pkl", _SCRIPT),
    ("data.pkl", _TORCH),
    ("models/model.json", _PROGRAM),
    ("serialized_exported_program.json", _PROGRAM),
    (".npy", "a NumPy archive"),
)
_REMEDIES = {
    _LFS: "fetch them: git lfs pull",
    _PAGE: "download the file again: its address answered with a page, perhaps to log in",
    _EMPTY: "save it again, or download it again",
    _CUT: "save it again, or download it again",
    _SCRIPT: "save its weights alone: torch.save(torch.jit.load('{name}').state_dict(), 'weights.pt')",
    _SAFETENSORS: "rename it to {stem}.safetensors",
    _TORCH: "rename it to {stem}.pt",
    _PICKLE: "if torch.save wrote it, rename it to {stem}.pt",
}
_WANTED: dict[ArchiveKind, str] = {"torchscript": _SCRIPT, "torch_export": _PROGRAM}
_SAVE_AS: dict[ArchiveKind, str] = {
    "torchscript": "save the module so: torch.jit.save(torch.jit.script(model), 'model.pt')",
    "torch_export": "save the program so: torch.export.save(torch.export.export(model, args), 'model.pt2')",
}
_OTHER_SOURCES = {
    _SCRIPT: "write kind: torchscript",
    _PROGRAM: "write kind: torch_export",
    _TORCH: "loading it would run the code that it pickles: write kind: torch with a factory, and its state_dict as "
    "weights",
    _PICKLE: "loading it would run its code: write kind: torch with a factory, and a state_dict as weights",
    _SAFETENSORS: "it holds weights and no module: write kind: torch with a factory, and this file as weights",
    _ONNX: "write kind: onnx",
}
_REMEDY = "save the weights: safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"


def check_archive(path: Path, kind: ArchiveKind) -> None:
    """Refuse a file that is not the archive that the spec says it is; nothing in it is unpickled.

    Args:
        path: The file.
        kind: The source's kind.

    Raises:
        SourceError: It can't be opened, or is something else; the message says what.
    """
    found = _kind(path, _head(path, "source.archive"))
    if found == _WANTED[kind]:
        return
    if path.suffix == ".onnx":
        found = _ONNX
    expected = "" if found in {_LFS, _EMPTY, _CUT} else f", not {_WANTED[kind]}"
    known = {**_OTHER_SOURCES, **{what: _REMEDIES[what] for what in (_LFS, _PAGE, _EMPTY, _CUT)}}
    raise SourceError(
        f"{path.name} is {found}{expected}",
        known.get(found, _SAVE_AS[kind]),
        code="source.archive",
        where=path.name,
    )


def is_script(path: Path) -> bool:
    """Tell whether a file is a TorchScript archive."""
    return _kind(path, _head(path, "source.archive")) == _SCRIPT


def check_format(path: Path) -> None:
    """Refuse a file that is plainly not what its name says.

    Args:
        path: ``.safetensors``, or else a file of ``torch.save``.

    Raises:
        SourceError: It can't be opened, or is something else; the message says what.
    """
    found = _kind(path, _head(path, "source.weights-unreadable"))
    wanted = _SAFETENSORS if path.suffix == ".safetensors" else _TORCH
    # Before torch 1.6, and still on request, torch.save wrote a pickle.
    if found != wanted and not (wanted == _TORCH and found == _PICKLE):
        expected = "" if found == _LFS else f", not {wanted}"
        raise SourceError(
            f"{path.name} is {found}{expected}",
            _REMEDIES.get(found, _REMEDY).format(name=path.name, stem=path.stem),
            code="source.weights-format",
            where=path.name,
        )


def _head(path: Path, code: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}", code=code, where=path.name) from error


def _kind(path: Path, head: bytes) -> str:
    if not head:
        return _EMPTY
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    if head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}:
        return _PICKLE
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _MOST_HEADER_BYTES:
        return _SAFETENSORS
    return _text(head)


def _archive(path: Path) -> str:
    names: list[str] = []
    with contextlib.suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for ending, kind in _MEMBERS:
        if any(name.endswith(ending) for name in names):
            return kind
    return "a zip archive" if names else _CUT


def _text(head: bytes) -> str:
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return _PAGE
    # A letter of several bytes may be cut at the end of what was read.
    text = head.decode("utf-8", errors="ignore")
    if len(text.encode()) < len(head) - 3 or not all(letter.isprintable() or letter.isspace() for letter in text):
        return "nothing that repogen knows"
    return "a text file"
