"""Findings about the files that a config requires: model files, class names, warmup data, initial states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import MANIFEST_FILE, MODEL_FILE, PYTHON_FILE
from repogen.files import exists, is_directory, is_file, is_inside, raise_if_exhausted
from repogen.files.tree import walk
from repogen.repository.decode import MalformedRecordError
from repogen.repository.layout import MODEL_FILES
from repogen.repository.manifest import damaged_files, may_be_imported, read_manifest, unlisted_files
from repogen.serving.admission import refusals
from repogen.triton_config.rules.file_names import (
    accelerator_files,
    data_files,
    environments,
    leaves,
    library_filenames,
    model_filenames,
)
from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.rules.identity import is_ensemble, is_onnx

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repogen.triton_config.rules.file_names import DataFile
    from repogen.triton_config.text.parse import ModelConfig


# Names of other backends' model files, as their sources define them.
_FILES_OF_BACKENDS = {"tensorrt": "model.plan", "openvino": "model.xml", "pytorch": "model.pt"}
_FILES_OF_PLATFORMS = {
    "tensorrt_plan": "model.plan",
    "pytorch_libtorch": "model.pt",
    "tensorflow_graphdef": "model.graphdef",
    "tensorflow_savedmodel": "model.savedmodel",
}


def model_file(version: Path, config: ModelConfig | None) -> Path | None:
    """Return the path of a version's model file; None if it can't be determined."""
    if config is not None and config.default_model_filename:
        # as Triton joins them: an absolute name is appended
        return _in_directory(Path(f"{version}/{config.default_model_filename}"))
    if config is not None and config.backend == "python":
        return version / PYTHON_FILE
    if config is None or is_onnx(config):
        names = MODEL_FILES if config is None or not (config.backend or config.platform) else MODEL_FILES[:1]
        existing = (version / name for name in names if exists(version / name))
        return _in_directory(next(existing, version / MODEL_FILE))
    name = _FILES_OF_PLATFORMS.get(config.platform) or _FILES_OF_BACKENDS.get(config.backend)
    # Files by compute capability, and PyTorch 2 models, have other names.
    return version / name if name and not config.cc_model_filenames and not config.runtime else None


def _in_directory(file: Path) -> Path:
    """Return the model file in a directory named like a model file: the backend looks for it there."""
    return file / MODEL_FILE if file.suffix == ".onnx" and is_directory(file) else file


def version_file_findings(version: Path, config: ModelConfig | None) -> Iterator[Finding]:
    """Yield a finding if the directory of a served version has no model file."""
    if config is not None and is_ensemble(config):
        return
    if not is_directory(version):
        return  # RG403 reports its name
    file = model_file(version, config)
    if file is None:
        if not any(version.iterdir()):
            message = f"version {version.name} is served, but is empty"
            yield Finding("RG404", "error", message, "put the model there, or remove it", path=str(version))
    elif not exists(file):
        message = f"version {version.name} is served, but has no {file.name}"
        hint = "put the model there, or remove the directory; another name requires default_model_filename"
        yield Finding("RG404", "error", message, hint, path=str(version))


def model_filename_findings(version: Path, config: ModelConfig) -> Iterator[Finding]:
    """Yield names of model files that lead out of the version's directory, to which Triton appends them."""
    for field, name in model_filenames(config):
        if leaves(os.path.relpath(f"{version}/{name}", version)):
            message = f"{name!r} is outside the directory of version {version.name}"
            hint = "keep the model file in the version's directory"
            yield Finding("RG404", "error", message, hint, field, security=True)


def named_file_findings(directory: Path, config: ModelConfig) -> Iterator[Finding]:
    """Yield findings about files that a config names: missing, too short, or outside the model's directory."""
    for file in (*data_files(config), *environments(config)):
        yield from _data_file_findings(directory, file)
    for field, value, is_library in accelerator_files(config):
        if not is_library:  # admission_findings reports libraries
            message = f"{value!r} names files that the accelerator reads and writes on the server"
            hint = "use a directory on the server that only its user can write to; others could replace cached engines"
            yield Finding("RG405", "warning", message, hint, field, security=True)
    for field, name in library_filenames(config):
        if "/" in name:
            message = f"{name!r} is a path on the server: Triton loads the library there as native code"
            hint = "install the library on the server, and write its name without a directory"
            yield Finding("RG405", "warning", message, hint, field, security=True)


def _data_file_findings(directory: Path, file: DataFile) -> Iterator[Finding]:
    relative, path = file.path, directory / file.path
    if "\0" in relative:
        yield Finding("RG405", "error", f"{file.name!r} is not a file name", "remove the NUL character", file.field)
    elif leaves(relative):
        message, hint = f"{relative!r} is outside the model's directory", "keep the file in the model's directory"
        yield Finding("RG405", "error", message, hint, file.field, security=True)
    elif is_file(path) or (file.may_be_directory and is_directory(path)):
        yield from _content_findings(directory, file)
    elif is_directory(path):
        message = f"{relative!r} is a directory, which crashes tritonserver 2.51"
        yield Finding("RG405", "error", message, "name a file", file.field)
    else:
        problem = "is not a regular file" if exists(path) else "does not exist"
        hint = "add it, or remove its name from the config"
        yield Finding("RG405", "error", f"{relative!r} {problem}", hint, file.field)


def _content_findings(directory: Path, file: DataFile) -> Iterator[Finding]:
    relative, path = file.path, directory / file.path
    if file.size and (size := path.stat().st_size) < file.size:
        message = f"{relative!r} has {size} bytes, but its dims and data type require {file.size}"
        yield Finding("RG405", "error", message, "write the raw values, row by row", file.field)
    if not is_inside(path, directory):
        message = f"{relative!r} is a link that leads out of the model's directory"
        yield Finding("RG405", "warning", message, "replace the link with a copy", file.field, security=True)


def link_findings(directory: Path, root: Path) -> Iterator[Finding]:
    """Yield broken symlinks, and those that leave the repository: they do not work in a copy or mount of it."""
    for path in _links(directory):
        if not exists(path) and path.parent == directory:
            message = f"{path.name} is a broken symlink; Triton fails to load the model"
            yield Finding("RG406", "error", message, "remove it, or fix it", path=str(path), security=True)
        elif not is_inside(path, root):
            message = f"{path.name} is a symlink that leads out of the repository; copies and mounts lack its target"
            hint = "replace the symlink with a copy of the file"
            yield Finding("RG406", "warning", message, hint, path=str(path), security=True)


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


def admission_findings(directory: Path, config: ModelConfig) -> Iterator[Finding]:
    """Yield why repogen does not load a model: its names reach a shell, or Triton would run code from its directory."""
    for reason in refusals(directory, config):
        hint = "remove or rename it; only Python models may contain code"
        message = f"{reason}; `repogen smoke` and `serve` do not load it"
        yield Finding("RG410", "error", message, hint, security=True)


def case_findings(directory: Path) -> Iterator[Finding]:
    """Yield names in a model's directory that differ only in case."""
    for parent, folders, files in walk(directory):
        yield from same_name_findings(parent, (*folders, *files))


def same_name_findings(parent: Path, names: Iterable[str]) -> Iterator[Finding]:
    """Yield names in one directory that differ only in case."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(name.casefold(), []).append(name)
    for group in groups.values():
        if len(group) > 1:
            message = f"{' and '.join(group)} differ only in case"
            hint = "rename one: a copy on macOS or Windows contains only one of them"
            yield Finding("RG408", "warning", message, hint, path=str(parent / group[-1]))


def manifest_findings(version: Path) -> Iterator[Finding]:
    """Yield the files of a version directory that do not match the manifest that repogen wrote."""
    try:
        manifest = read_manifest(version)
    except FileNotFoundError:
        return
    except (OSError, MalformedRecordError) as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        path = str(version / MANIFEST_FILE)
        hint = "if repogen wrote it, build the version again"
        message = f"the manifest cannot be read: {error}"
        yield Finding("RG407", "warning", message, hint, path=path, security=True)
        return
    for line in damaged_files(version, manifest):
        hint = "restore the file, or build a new version and delete this one"
        yield Finding("RG407", "error", f"version {version.name}: {line}", hint, path=str(version), security=True)
    for name in unlisted_files(version, manifest):
        if not may_be_imported(name, manifest):  # otherwise damaged_files contains it
            message = f"version {version.name}: {name} is not listed in the manifest"
            hint = "remove it: it was not verified"
            yield Finding("RG407", "warning", message, hint, path=str(version / name), security=True)
