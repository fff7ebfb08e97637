"""Identifies a file by its first bytes, so that a wrong file gets a clear message instead of a loader's error."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal, TypeAlias

from repogen.errors import SourceError
from repogen.files import open_regular
from repogen.files.archive import open_archive
from repogen.files.content import ContentError

if TYPE_CHECKING:
    from pathlib import Path

ArchiveKind: TypeAlias = Literal["torchscript", "torch_export"]

_HEAD = 1024
_MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit

_SAFETENSORS = "a safetensors file"
_TORCH = "a torch.save file"
_PICKLE = "a pickle"
_SCRIPT = "a TorchScript archive"
_PROGRAM = "a torch.export program"
_LFS = "a Git LFS pointer, not the file itself"
_PAGE = "a web page"
_ONNX = "an ONNX file"
_EMPTY = "empty"
_CUT = "a truncated zip archive"

_MAGIC = (
    (b"version https://git-lfs.github.com/spec/", _LFS),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "a gzip file"),
)
# Ending of a member's name -> kind of the archive; the first match counts.
_MEMBERS = (
    ("constants.pkl", _SCRIPT),
    ("data.pkl", _TORCH),
    ("models/model.json", _PROGRAM),
    ("serialized_exported_program.json", _PROGRAM),
    (".npy", "a NumPy archive"),
)
_REMEDIES = {
    _LFS: "download the file: git lfs pull",
    _PAGE: "download the file again: the server returned a page, perhaps a login page",
    _EMPTY: "save it again, or download it again",
    _CUT: "save it again, or download it again",
    _SCRIPT: "save only its weights: torch.save(torch.jit.load('{name}').state_dict(), 'weights.pt')",
    _SAFETENSORS: "rename it to {stem}.safetensors",
    _TORCH: "rename it to {stem}.pt",
    _PICKLE: "if torch.save wrote it, rename it to {stem}.pt",
}
_EXPECTED: dict[ArchiveKind, str] = {"torchscript": _SCRIPT, "torch_export": _PROGRAM}
_SAVE_AS: dict[ArchiveKind, str] = {
    "torchscript": "save the module: torch.jit.save(torch.jit.script(model), 'model.pt')",
    "torch_export": "save the program: torch.export.save(torch.export.export(model, args), 'model.pt2')",
}
_OTHER_SOURCES = {
    _SCRIPT: "use kind: torchscript",
    _PROGRAM: "use kind: torch_export",
    _TORCH: "loading it would run pickled code: use kind: torch with a factory, and its state_dict as weights",
    _PICKLE: "loading it would run pickled code: use kind: torch with a factory, and a state_dict as weights",
    _SAFETENSORS: "it contains weights but no module: use kind: torch with a factory, and this file as weights",
    _ONNX: "use kind: onnx",
}
_REMEDY = "save the weights: safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"


def check_archive(path: Path, kind: ArchiveKind) -> None:
    """Reject a file that is not an archive of the declared kind; nothing in it is unpickled.

    Args:
        path: The file.
        kind: The kind of the source.

    Raises:
        SourceError: The file cannot be opened, or has another format, which the message names.
    """
    actual = _kind(path, _head(path, "source.archive"))
    if actual == _EXPECTED[kind]:
        return
    if path.suffix == ".onnx":
        actual = _ONNX
    expected = "" if actual in {_LFS, _EMPTY, _CUT} else f", not {_EXPECTED[kind]}"
    hints = {**_OTHER_SOURCES, **{what: _REMEDIES[what] for what in (_LFS, _PAGE, _EMPTY, _CUT)}}
    raise SourceError(
        f"{path.name} is {actual}{expected}",
        hints.get(actual, _SAVE_AS[kind]),
        code="source.archive",
        where=path.name,
    )


def is_script(path: Path) -> bool:
    """Return whether a file is a TorchScript archive."""
    return _kind(path, _head(path, "source.archive")) == _SCRIPT


def check_format(path: Path) -> None:
    """Reject a weights file whose contents do not match its name.

    Args:
        path: A ``.safetensors`` file; any other name stands for a ``torch.save`` file.

    Raises:
        SourceError: The file cannot be opened, or has another format, which the message names.
    """
    actual = _kind(path, _head(path, "source.weights-unreadable"))
    declared = _SAFETENSORS if path.suffix == ".safetensors" else _TORCH
    # torch.save wrote a plain pickle before torch 1.6, and still does on request.
    if actual != declared and not (declared == _TORCH and actual == _PICKLE):
        expected = "" if actual == _LFS else f", not {declared}"
        raise SourceError(
            f"{path.name} is {actual}{expected}",
            _REMEDIES.get(actual, _REMEDY).format(name=path.name, stem=path.stem),
            code="source.weights-format",
            where=path.name,
        )


def _head(path: Path, code: str) -> bytes:
    try:
        with open_regular(path) as file:
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
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= _MAX_HEADER_BYTES:
        return _SAFETENSORS
    return _text(head)


def _archive(path: Path) -> str:
    names: tuple[str, ...] = ()
    with contextlib.suppress(ContentError, OSError), open_archive(path) as archive:
        names = archive.names
    for ending, kind in _MEMBERS:
        if any(name.endswith(ending) for name in names):
            return kind
    return "a zip archive" if names else _CUT


def _text(head: bytes) -> str:
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return _PAGE
    # The last character may be incomplete.
    text = head.decode("utf-8", errors="ignore")
    if len(text.encode()) < len(head) - 3 or not all(
        character.isprintable() or character.isspace() for character in text
    ):
        return "in an unknown format"
    return "a text file"
