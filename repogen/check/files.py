"""Findings about the files that a config requires: model files, class names, warmup data, initial states."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import MANIFEST_FILE, MODEL_FILE, PYTHON_FILE
from repogen.check.layout import MODEL_FILES
from repogen.repository.decode import INT64_MAX, MalformedRecordError
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_ensemble, is_onnx
from repogen.triton_config.text.view import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.triton_config.text.parse import ModelConfig

_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "UINT8", "INT8"), 1),
    **dict.fromkeys(("UINT16", "INT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("UINT32", "INT32", "FP32"), 4),
    **dict.fromkeys(("UINT64", "INT64", "FP64"), 8),
}


def model_file(version: Path, config: ModelConfig | None) -> Path | None:
    """Return the path of a version's model file; None if it can't be determined."""
    if config is not None and config.default_model_filename:
        return _in_directory(version / str(config.default_model_filename))
    if config is not None and config.backend == "python":
        return version / PYTHON_FILE
    if config is None or is_onnx(config):
        names = MODEL_FILES if config is None or not (config.backend or config.platform) else MODEL_FILES[:1]
        existing = (version / name for name in names if (version / name).exists())
        return _in_directory(next(existing, version / MODEL_FILE))
    return None


def _in_directory(file: Path) -> Path:
    """Return the model file in a directory named like a model file: the backend looks for it there."""
    return file / MODEL_FILE if file.suffix == ".onnx" and file.is_dir() else file


def version_file_findings(version: Path, config: ModelConfig | None) -> Iterator[Finding]:
    """Yield a finding if the directory of a served version has no model file."""
    if config is not None and is_ensemble(config):
        return
    file = model_file(version, config)
    if not version.is_dir():
        return  # RG403 reports its name
    if file is None:
        if not any(version.iterdir()):
            message = f"version {version.name} is empty, and it is served"
            yield Finding("RG404", "error", message, "put the model there, or remove it", path=str(version))
    elif not file.exists():
        message = f"version {version.name} has no {file.name}, and it is served"
        hint = "put the model there, or remove the directory; another name requires default_model_filename"
        yield Finding("RG404", "error", message, hint, path=str(version))


@dataclass(frozen=True)
class _NamedFile:
    """A file that a config names.

    Attributes:
        field: The field that contains the name.
        directory: The directory, relative to the model's, in which Triton looks for it.
        name: Its name there.
        size: Minimum size in bytes; 0 if any size is valid.
    """

    field: str
    directory: str
    name: str
    size: int = 0


def named_file_findings(directory: Path, config: ModelConfig) -> Iterator[Finding]:
    """Yield findings about files that a config names: missing, too short, or outside the model's directory."""
    for file in _named_files(config):
        if "\0" in file.name:
            yield Finding("RG405", "error", f"{file.name!r} is not a file name", "remove the NUL", file.field)
            continue
        # as Triton joins them: an absolute name is appended
        path = Path(f"{directory}/{file.directory}/{file.name}")
        relative = f"{file.directory}/{file.name}".lstrip("/")
        if ".." in path.parts or not path.resolve().is_relative_to(directory.resolve()):
            message = f"{relative!r} is outside the model's directory"
            yield Finding("RG405", "warning", message, "keep the file in it", file.field)
        if path.is_dir():
            message = f"{relative!r} is a directory, which crashes tritonserver 2.51"
            yield Finding("RG405", "error", message, "name a file", file.field)
        elif not path.is_file():
            yield Finding("RG405", "error", f"{relative!r} does not exist", "add it, or remove its name", file.field)
        elif (size := path.stat().st_size) < file.size:
            message = f"{relative!r} has {size} bytes, but its dims and data type require {file.size}"
            yield Finding("RG405", "error", message, "write the raw values, row by row", file.field)


def _named_files(config: ModelConfig) -> Iterator[_NamedFile]:
    for index, output in enumerate(config.output):
        if output.label_filename:
            yield _NamedFile(f"output[{index}].label_filename", "", output.label_filename)
    samples = ((index, list(warmup.inputs.values())) for index, warmup in enumerate(config.model_warmup))
    for index, number, sample in ((i, n, sample) for i, inputs in samples for n, sample in enumerate(inputs)):
        if sample.HasField("input_data_file"):
            field = f"model_warmup[{index}].inputs[{number}].value.input_data_file"
            yield _NamedFile(field, "warmup", sample.input_data_file, _bytes(sample.data_type, sample.dims))
    for index, state in enumerate(config.sequence_batching.state):
        for number, initial in enumerate(state.initial_state):
            if initial.HasField("data_file"):
                field = f"sequence_batching.state[{index}].initial_state[{number}].data_file"
                yield _NamedFile(field, "initial_state", initial.data_file, _bytes(initial.data_type, initial.dims))


def _bytes(data_type: int, dims: Sequence[int]) -> int:
    """Return the size of a tensor in bytes; 0 for strings, which have any length."""
    size = _ITEM_BYTES.get(dtype_name(data_type), 0)
    for dim in dims:
        size = min(size * max(dim, 0), INT64_MAX)
    return size


def link_findings(directory: Path, root: Path) -> Iterator[Finding]:
    """Yield broken symlinks, and those that leave the repository: they do not work in a copy or mount of it."""
    for path in _links(directory):
        if not path.exists() and path.parent == directory:
            message = f"{path.name} is a broken symlink; Triton fails to load the model"
            yield Finding("RG406", "error", message, "remove it, or fix it", path=str(path))
        elif not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
            message = f"{path.name} is a symlink out of the repository; a copy or mount will not contain its target"
            yield Finding("RG406", "warning", message, "replace the symlink by a copy of the file", path=str(path))


def _links(directory: Path) -> Iterator[Path]:
    """Yield every symlink below a directory, and the directory if it is one, without following them."""
    if directory.is_symlink():
        yield directory
    queue = [str(directory)]
    while queue:
        with os.scandir(queue.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir():
                    queue.append(entry.path)


def manifest_findings(version: Path) -> Iterator[Finding]:
    """Yield the files of a version directory that do not match the manifest that repogen wrote."""
    try:
        manifest = read_manifest(version)
    except FileNotFoundError:
        return
    except (OSError, MalformedRecordError) as error:
        path = str(version / MANIFEST_FILE)
        hint = "if repogen wrote it, build the version again"
        yield Finding("RG407", "warning", f"the manifest cannot be read: {error}", hint, path=path)
        return
    for line in damaged_files(version, manifest):
        hint = "build the version again, or restore the file"
        yield Finding("RG407", "error", f"version {version.name}: {line}", hint, path=str(version))
