"""``manifest.json``: which files a version directory contains, and how it was built. It is written last."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, TypeAdapter

from repogen.artifacts.built_model import FileRecord, Lossy
from repogen.artifacts.file_names import (
    ATTESTATION_FILES,
    CONFIG_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    PYTHON_FILE,
    UNCONFIRMED_FILE,
)
from repogen.artifacts.named_file import is_named_by, named_records, path_in_model
from repogen.artifacts.tensors import DTYPES, MAX_RANK, Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import PublishError, error_from_record
from repogen.files import raise_if_exhausted
from repogen.files.content import MAX_TEXT_BYTES, ContentError, require_few_values
from repogen.files.work_limit import shared
from repogen.repository.decode import (
    INT64_MAX,
    SCHEMA,
    Count,
    Document,
    JsonFloat,
    MalformedRecordError,
    Part,
    decode,
    encode,
    malformed,
    read_record,
)
from repogen.repository.digest import sha256_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repogen.repository.remembered import Remembered

_MAIN_FILES = {"python": PYTHON_FILE, "ensemble": CONFIG_FILE}
_MAX_PARTS = 32
_MAX_KEYS = 20_000
"""Of a fingerprint: distributions, and files of code and weights. All manifests of a repository are read at once."""
_MAX_REPEATED_BYTES = 2**30
"""Bytes of further links to a version's files, in addition to as many as the files have."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _valid_tensor(tensor: TensorSpec) -> TensorSpec:
    if tensor.dtype not in DTYPES:
        raise ValueError(f"dtype {tensor.dtype!r} is not one of {', '.join(DTYPES)}")
    if any(isinstance(dim, int) and not 0 <= dim <= INT64_MAX for dim in tensor.shape):
        raise ValueError("shape must contain sizes and names of symbolic dimensions")
    if len(tensor.shape) > MAX_RANK:
        raise ValueError(f"shape has {len(tensor.shape)} dims; the limit is {MAX_RANK}")
    return tensor


def require_listable(name: str) -> None:
    """Require a path that a manifest can list: it is in the version's directory.

    Args:
        name: The path, relative to that directory.

    Raises:
        ValueError: It leads out of the directory, is nested deeply, or has a line break.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or {"\0", "\n"} & set(name):
        raise ValueError(f"path {name!r} is outside the version directory")
    if len(path.parts) > _MAX_PARTS:
        raise ValueError(f"path {name[:100]!r}… is nested deeper than {_MAX_PARTS} directories")


def _valid_file(record: FileRecord) -> FileRecord:
    require_listable(record.path)
    if not _SHA256.fullmatch(record.sha256):
        raise ValueError("sha256 must be 64 hex digits")
    if not is_named_by(record.path, record.sha256):  # it could replace the file of another version in the model
        raise ValueError(f"{record.path} is not named by its sha256")
    if not 0 <= record.size <= INT64_MAX:
        raise ValueError("size must not be negative, or above 64 bits")
    return record


_Tensors = tuple[Annotated[TensorSpec, AfterValidator(_valid_tensor)], ...]


class _Provenance(Part):
    tools: Annotated[dict[str, str], Field(max_length=_MAX_KEYS)]
    git_commit: str
    spec_sha256: str
    fingerprint: Annotated[dict[str, str], Field(max_length=_MAX_KEYS)]
    target: str
    exporter: str
    opset: Count
    ir_version: Count
    nodes_exported: Count
    nodes_optimized: Count
    parity_cases: Count
    parity_max_abs_diff: JsonFloat
    parity_max_rel_diff: JsonFloat
    lossy: Lossy | None = None


class _Document(Document):
    """The format of the file."""

    model: str
    max_batch_size: Count
    inputs: _Tensors
    outputs: _Tensors
    files: tuple[Annotated[FileRecord, AfterValidator(_valid_file)], ...]
    provenance: _Provenance


_DOCUMENT = TypeAdapter(_Document)


def manifest_to_json(manifest: Manifest) -> str:
    """Return ``manifest`` as JSON; equal manifests give equal text.

    Raises:
        PublishError: ``read_manifest`` would reject the text: the version has too many files.
    """
    text = encode(
        _Document(
            schema=SCHEMA,
            model=manifest.model,
            max_batch_size=manifest.max_batch_size,
            inputs=manifest.signature.inputs,
            outputs=manifest.signature.outputs,
            files=manifest.files,
            provenance=_Provenance(**asdict(manifest.provenance)),
        )
    )
    if problem := _unreadable(text):
        raise PublishError(
            f"{manifest.model}: the manifest of a version with {len(manifest.files):,} files {problem}",
            "publish fewer files with the model, for example fewer packages",
            code="stage.manifest-size",
        )
    return text


def _unreadable(text: str) -> str:
    """Return why a reader would reject the size of a text; empty if it would not."""
    try:
        require_few_values(text)
    except ContentError as error:
        return str(error)
    size = len(text.encode())
    return f"has {size:,} bytes; the limit is {MAX_TEXT_BYTES:,}" if size > MAX_TEXT_BYTES else ""


def manifest_from_json(text: str, where: str = MANIFEST_FILE) -> Manifest:
    """Return the manifest in a JSON text.

    Args:
        text: Contents of ``manifest.json``.
        where: The file's name for messages.

    Raises:
        MalformedRecordError: Not the format that ``manifest_to_json`` writes, a newer schema, or a path outside the
            version directory. Unknown keys are ignored.
    """
    return _manifest(decode(_DOCUMENT, text, where), where)


def _manifest(document: _Document, where: str) -> Manifest:
    main = _MAIN_FILES.get(document.provenance.exporter, MODEL_FILE)
    if not any(file.path == main for file in document.files):
        raise malformed(where, f"files does not list {main}")
    return Manifest(
        model=document.model,
        max_batch_size=document.max_batch_size,
        signature=Signature(document.inputs, document.outputs),
        files=document.files,
        provenance=Provenance(**dict(document.provenance)),
    )


def read_manifest(version_dir: Path) -> Manifest:
    """Return the manifest of a version directory.

    In ``work_limit``, a file to which several links lead is read once: it may have 16 MiB.

    Raises:
        FileNotFoundError: The directory has no manifest: repogen did not build it.
        MalformedRecordError: The file is damaged.
    """
    path = version_dir / MANIFEST_FILE
    where = "/".join(path.parts[-3:])
    status = path.stat()
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    manifests = shared("manifests")
    if key not in manifests:
        try:
            manifests[key] = _manifest(read_record(_DOCUMENT, path, where), where)
        except MalformedRecordError as error:
            manifests[key] = error.record
            raise
    manifest = manifests[key]
    if not isinstance(manifest, Manifest):
        raise error_from_record(manifest)
    return manifest


def damaged_files(version_dir: Path, manifest: Manifest, remembered: Remembered | None = None) -> tuple[str, ...]:
    """Return one line for each file of a version that does not match its manifest, or that Python could import.

    Args:
        version_dir: The version's directory.
        manifest: Its manifest.
        remembered: Digests of earlier runs; without them every file is read.
    """
    damage = _damaged_paths({version_dir / record.path: record for record in manifest.files}, remembered)
    try:
        modules = [name for name in unlisted_files(version_dir, manifest) if may_be_imported(name, manifest)]
    except OSError as error:
        raise_if_exhausted(error)
        return (*damage, f"the directory cannot be read: {error.strerror}")
    return (*damage, *(f"{name} is not listed in the manifest, and {PYTHON_FILE} could import it" for name in modules))


def unlisted_files(version_dir: Path, manifest: Manifest) -> tuple[str, ...]:
    """Return the paths of files and links in a version's directory that its manifest does not list, sorted.

    The attestation, the bill of materials and the signature are never listed.
    A directory that contains no listed file is one path: its name with a slash.

    Raises:
        OSError: A directory cannot be read.
    """
    listed = {MANIFEST_FILE, UNCONFIRMED_FILE, *ATTESTATION_FILES, *(record.path for record in manifest.files)}
    folders = {str(parent) for path in listed for parent in PurePosixPath(path).parents} - {"."}
    unlisted = []
    queue = [""]
    while queue:
        folder = queue.pop()
        with suppress(FileNotFoundError), os.scandir(version_dir / folder) as entries:
            for entry in entries:
                name = f"{folder}{entry.name}"
                is_directory = entry.is_dir(follow_symlinks=False)
                if is_directory and name in folders:
                    queue.append(f"{name}/")
                elif name not in listed:
                    unlisted.append(f"{name}/" if is_directory else name)
    return tuple(sorted(unlisted))


def repeated_files(version_dir: Path, manifest: Manifest) -> str:
    """Return that many links lead to the same files of a version; empty if not.

    Code that reads the version file by file would read these files again for each link, and copies would fill the disk.

    Args:
        version_dir: A version directory.
        manifest: The manifest.

    Raises:
        OSError: A directory cannot be read.
    """
    statuses = [path.stat() for record in manifest.files if (path := version_dir / record.path).exists()]
    total = sum(status.st_size for status in statuses)
    distinct = sum({(status.st_dev, status.st_ino): status.st_size for status in statuses}.values())
    if total - distinct > distinct + _MAX_REPEATED_BYTES:
        return f"several links lead to the same files: {total} bytes would be read, of {distinct}"
    return ""


def may_be_imported(name: str, manifest: Manifest) -> bool:
    """Return whether an unlisted path could change what a version's Python code imports.

    Triton's Python backend puts the directory of model.py on the search path. It also writes ``__pycache__`` there.
    """
    is_module = name.endswith((".py", ".pyc", ".so", "/")) and name != "__pycache__/"
    return is_module and manifest.provenance.exporter == "python"


def damaged_named_files(model: Path, files: Iterable[FileRecord]) -> tuple[str, ...]:
    """Return one line for each file that a version's config names and that does not match in the model's directory.

    Args:
        model: The model's directory.
        files: The version's files, as its manifest lists them.
    """
    return _damaged_paths({model / path_in_model(record.path): record for record in named_records(files)})


def _damaged_paths(records: Mapping[Path, FileRecord], remembered: Remembered | None = None) -> tuple[str, ...]:
    """Compare files with their records. Sizes are compared first; large files are hashed in parallel."""
    damage = {path: line for path, record in records.items() if (line := _size_difference(path, record))}
    remaining = {path: record for path, record in records.items() if path not in damage}
    for (path, record), digest in zip(remaining.items(), sha256_files(remaining, remembered), strict=True):
        if digest is None:
            damage[path] = f"{record.path} cannot be read"
        elif digest != record.sha256:
            damage[path] = f"{record.path} has a different sha256"
    return tuple(damage[path] for path in records if path in damage)


def _size_difference(path: Path, record: FileRecord) -> str:
    try:
        if not path.is_file():
            return f"{record.path} is missing"
        size = path.stat().st_size
    except OSError as error:  # a name that is too long
        return f"{record.path} cannot be read: {error.strerror}"
    return f"{record.path} has {size} bytes, not {record.size}" if size != record.size else ""
