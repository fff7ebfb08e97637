"""What a model's directory must hold for its config: model files, labels, data of warmups and states."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.check.layout import MODEL_FILES
from repogen.repository.decode import MalformedRecordError
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_ensemble, is_onnx
from repogen.triton_config.text.view import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from repogen.check.layout import Version
    from repogen.triton_config.text.parse import ModelConfig

_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "UINT8", "INT8"), 1),
    **dict.fromkeys(("UINT16", "INT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("UINT32", "INT32", "FP32"), 4),
    **dict.fromkeys(("UINT64", "INT64", "FP64"), 8),
}


def model_file(version: Path, config: ModelConfig | None) -> Path | None:
    """Return a version's model file; None where nothing says which it is."""
    if config is not None and config.default_model_filename:
        return _in_directory(version / str(config.default_model_filename))
    if config is not None and config.backend == "python":
        return version / "model.py"
    if config is None or is_onnx(config):
        names = MODEL_FILES if config is None or not (config.backend or config.platform) else MODEL_FILES[:1]
        there = (version / name for name in names if (version / name).exists())
        return _in_directory(next(there, version / "model.onnx"))
    return None


def _in_directory(file: Path) -> Path:
    """Return the model in a directory that bears a model file's name: the backend looks for one there."""
    return file / "model.onnx" if file.suffix == ".onnx" and file.is_dir() else file


def version_file_findings(version: Version, config: ModelConfig | None) -> Iterator[Finding]:
    """Yield what a version that is served lacks."""
    if config is not None and is_ensemble(config):
        return
    file = model_file(version.path, config)
    if not version.path.is_dir():
        return  # its name is wrong, which is told
    if file is None:
        if not any(version.path.iterdir()):
            message = f"version {version.number} is empty, and it is served"
            yield Finding("RG404", "error", message, "put the model there, or remove it", path=str(version.path))
    elif not file.exists():
        message = f"version {version.number} has no {file.name}, and it is served"
        hint = "put the model there, or remove the directory; another name needs default_model_filename"
        yield Finding("RG404", "error", message, hint, path=str(version.path))


@dataclass(frozen=True)
class _NamedFile:
    """A file that a config names.

    Attributes:
        field: The field that does.
        place: Directory in the model's, that it is looked for in.
        name: Its name there.
        size: Bytes that it must have at least; 0 where nothing says.
    """

    field: str
    place: str
    name: str
    size: int = 0


def named_file_findings(directory: Path, config: ModelConfig) -> Iterator[Finding]:
    """Yield the files that a config names and that are not there, or too short."""
    for file in _named(config):
        if "\0" in file.name:
            yield Finding("RG405", "error", f"{file.name!r} is no file's name", "remove the NUL", file.field)
            continue
        path = Path(f"{directory}/{file.place}/{file.name}")  # as Triton joins them: an absolute name begins here, too
        shown = f"{file.place}/{file.name}".lstrip("/")
        if ".." in path.parts or not path.resolve().is_relative_to(directory.resolve()):
            message = f"{shown!r} leads out of the model's directory"
            yield Finding("RG405", "warning", message, "keep the file in it", file.field)
        if path.is_dir():
            message = f"{shown!r} is a directory, which brings tritonserver 2.51 down"
            yield Finding("RG405", "error", message, "name a file", file.field)
        elif not path.is_file():
            yield Finding("RG405", "error", f"{shown!r} is not there", "write the file, or drop its name", file.field)
        elif (size := path.stat().st_size) < file.size:
            message = f"{shown!r} has {size} bytes, and its dims and type make {file.size}"
            yield Finding("RG405", "error", message, "write the raw values, row by row", file.field)


def _named(config: ModelConfig) -> Iterator[_NamedFile]:
    for index, output in enumerate(config.output):
        if output.label_filename:
            yield _NamedFile(f"output[{index}].label_filename", "", output.label_filename)
    samples = ((index, list(warmup.inputs.values())) for index, warmup in enumerate(config.model_warmup))
    for index, number, fed in ((i, n, fed) for i, inputs in samples for n, fed in enumerate(inputs)):
        if fed.HasField("input_data_file"):
            field = f"model_warmup[{index}].inputs[{number}].value.input_data_file"
            yield _NamedFile(field, "warmup", fed.input_data_file, _bytes(fed.data_type, fed.dims))
    for index, state in enumerate(config.sequence_batching.state):
        for number, initial in enumerate(state.initial_state):
            if initial.HasField("data_file"):
                field = f"sequence_batching.state[{index}].initial_state[{number}].data_file"
                yield _NamedFile(field, "initial_state", initial.data_file, _bytes(initial.data_type, initial.dims))


def _bytes(data_type: int, dims: Sequence[int]) -> int:
    """Return the bytes of a tensor; 0 for strings, which have any length."""
    return max(prod(dims), 0) * _ITEM_BYTES.get(dtype_name(data_type), 0)


def link_findings(directory: Path, root: Path) -> Iterator[Finding]:
    """Yield links that leave the repository: they work here, and not where it is copied or mounted."""
    for path in _links(directory):
        if not path.exists() and path.parent == directory:
            message = f"{path.name} is a link to nothing, and Triton gives the model up"
            yield Finding("RG406", "error", message, "remove it, or mend it", path=str(path))
        elif not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
            message = f"{path.name} is a link that leaves the repository: a copy or a mount of it has it not"
            yield Finding("RG406", "warning", message, "copy the file in place of the link", path=str(path))


def _links(directory: Path) -> Iterator[Path]:
    """Yield every link below a directory, and the directory itself if it is one; none is followed."""
    if directory.is_symlink():
        yield directory
    pending = [str(directory)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_symlink():
                    yield Path(entry.path)
                elif entry.is_dir():
                    pending.append(entry.path)


def manifest_findings(version: Version) -> Iterator[Finding]:
    """Yield files that are not as the manifest says that repogen wrote."""
    try:
        manifest = read_manifest(version.path)
    except FileNotFoundError:
        return
    except (OSError, MalformedRecordError) as error:
        path = str(version.path / "manifest.json")
        hint = "if repogen wrote it, build the version again"
        yield Finding("RG407", "warning", f"the manifest cannot be read: {error}", hint, path=path)
        return
    for line in damaged_files(version.path, manifest):
        hint = "build the version again, or restore the file"
        yield Finding("RG407", "error", f"version {version.number}: {line}", hint, path=str(version.path))
