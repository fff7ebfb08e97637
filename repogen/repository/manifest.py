"""``manifest.json``: what a version directory holds and how it came to be; written last, so it vouches for the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE, MODEL_FILE, PYTHON_FILE
from repogen.artifacts.tensors import DTYPES, Dim, Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.repository.decode import JsonObject, json_number, malformed, parse_object
from repogen.repository.digest import sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = 1

_MAIN_FILES = {"python": PYTHON_FILE, "ensemble": CONFIG_FILE}
_SHA256 = re.compile(r"[0-9a-f]{64}")


def manifest_to_json(manifest: Manifest) -> str:
    """Return ``manifest`` as JSON; equal values give equal text, keys sorted."""
    made = manifest.provenance
    document = {
        "schema": SCHEMA,
        "model": manifest.model,
        "max_batch_size": manifest.max_batch_size,
        "inputs": _tensors_to_json(manifest.signature.inputs),
        "outputs": _tensors_to_json(manifest.signature.outputs),
        "files": [{"path": file.path, "sha256": file.sha256, "size": file.size} for file in manifest.files],
        "provenance": {
            "tools": made.tools,
            "git_commit": made.git_commit,
            "spec_sha256": made.spec_sha256,
            "fingerprint": made.fingerprint,
            "target": made.target,
            "exporter": made.exporter,
            "opset": made.opset,
            "ir_version": made.ir_version,
            "nodes_exported": made.nodes_exported,
            "nodes_optimized": made.nodes_optimized,
            "parity_cases": made.parity_cases,
            "parity_max_abs_diff": json_number(made.parity_max_abs_diff),
            "parity_max_rel_diff": json_number(made.parity_max_rel_diff),
        },
    }
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def manifest_from_json(text: str, where: str = MANIFEST_FILE) -> Manifest:
    """Return the manifest that ``text`` holds.

    Args:
        text: Contents of ``manifest.json``.
        where: The file's name for messages.

    Raises:
        MalformedRecordError: Not what ``manifest_to_json`` writes, a newer schema, or a path that leads out of the
            version directory. Members that this version does not know are tolerated.
    """
    document = parse_object(text, where)
    if document.count("schema") > SCHEMA:
        raise malformed(where, f"schema {document.count('schema')} is newer than this repogen knows ({SCHEMA})")
    manifest = Manifest(
        model=document.text("model"),
        max_batch_size=document.count("max_batch_size"),
        signature=Signature(_tensors(document.children("inputs")), _tensors(document.children("outputs"))),
        files=tuple(_file(file) for file in document.children("files")),
        provenance=_provenance(document.child("provenance")),
    )
    main = _MAIN_FILES.get(manifest.provenance.exporter, MODEL_FILE)
    if not any(file.path == main for file in manifest.files):
        raise malformed(where, f"`files` does not list {main}")
    return manifest


def read_manifest(version_dir: Path) -> Manifest:
    """Return the manifest of a version directory.

    Raises:
        FileNotFoundError: It has none: repogen did not build it.
        MalformedRecordError: The file is damaged.
    """
    path = version_dir / MANIFEST_FILE
    where = "/".join(path.parts[-3:])
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise malformed(where, "not UTF-8") from error
    return manifest_from_json(text, where)


def damaged_files(version_dir: Path, manifest: Manifest) -> tuple[str, ...]:
    """Return one line for each file that is not as the manifest says; sizes are compared before anything is hashed."""
    return tuple(line for file in manifest.files if (line := _damage(version_dir, file)))


def _damage(version_dir: Path, file: FileRecord) -> str:
    path = version_dir / file.path
    if not path.is_file():
        return f"{file.path} is missing"
    if (size := path.stat().st_size) != file.size:
        return f"{file.path} has {size} bytes, not {file.size}"
    if sha256_file(path) != file.sha256:
        return f"{file.path} has another sha256"
    return ""


def _tensors_to_json(tensors: Iterable[TensorSpec]) -> list[dict[str, object]]:
    return [{"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)} for tensor in tensors]


def _tensors(values: list[JsonObject]) -> tuple[TensorSpec, ...]:
    return tuple(_tensor(value) for value in values)


def _tensor(value: JsonObject) -> TensorSpec:
    dtype = value.text("dtype")
    if dtype not in DTYPES:
        raise malformed(value.where, f"`dtype` {dtype!r} is none of {', '.join(DTYPES)}")
    return TensorSpec(value.text("name"), dtype, tuple(_dim(dim, value) for dim in value.items("shape")))


def _dim(dim: object, tensor: JsonObject) -> Dim:
    if isinstance(dim, str) or (isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0):
        return dim
    raise malformed(tensor.where, "`shape` must hold sizes and names of symbolic dims")


def _file(value: JsonObject) -> FileRecord:
    record = FileRecord(value.text("path"), value.text("sha256"), value.count("size"))
    path = PurePosixPath(record.path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise malformed(value.where, f"`path` {record.path!r} leads out of the version directory")
    if not _SHA256.fullmatch(record.sha256):
        raise malformed(value.where, "`sha256` must be 64 hex digits")
    return record


def _provenance(value: JsonObject) -> Provenance:
    return Provenance(
        tools=value.texts("tools"),
        git_commit=value.text("git_commit"),
        spec_sha256=value.text("spec_sha256"),
        fingerprint=value.texts("fingerprint"),
        target=value.text("target"),
        exporter=value.text("exporter"),
        opset=value.count("opset"),
        ir_version=value.count("ir_version"),
        nodes_exported=value.count("nodes_exported"),
        nodes_optimized=value.count("nodes_optimized"),
        parity_cases=value.count("parity_cases"),
        parity_max_abs_diff=value.number("parity_max_abs_diff"),
        parity_max_rel_diff=value.number("parity_max_rel_diff"),
    )
