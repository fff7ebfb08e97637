"""Decides which models of a repository Triton may load: those that run no code and read no files elsewhere.

Python models are the exception: they run their code by design.

A server responds to requests of every user of the machine. A label file or external data outside of the repository
would give them the content of any file that the user of the server can read.

Sources: Triton 24.10, ``src/backend_model.cc`` and ``src/repo_agent.cc`` of triton-inference-server/core, where backend
libraries are searched in the version's and the model's directory before the backend's; ``src/stub_launcher.cc`` of
triton-inference-server/python_backend, which passes names to ``bash -c`` unquoted.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MODEL_FILE, PYTHON_FILE
from repogen.errors import ConfigError
from repogen.files import is_directory, is_file, is_inside, open_regular, reason
from repogen.files.content import ContentError
from repogen.files.paths import FOREIGN_LINK, foreign_link_in, real_path
from repogen.files.resolve import ForeignLinkError
from repogen.files.work_limit import WorkLimitError, raise_if_exceeded, work_limit
from repogen.repository.ensembles import steps_reason
from repogen.repository.layout import MODEL_FILES, requirements_in
from repogen.triton_config.rules.file_names import (
    accelerator_files,
    data_files,
    leaves,
    model_filenames,
    session_files,
)
from repogen.triton_config.rules.findings import listed
from repogen.triton_config.rules.identity import is_ensemble, is_onnx
from repogen.triton_config.text.parse import empty_config, parse, parse_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from repogen.triton_config.text.parse import ModelConfig

_WORD = re.compile(r"[\w.@%+=:,-]+")
_PATH = re.compile(r"[\w.@%+=:,/-]+")
_PLAIN = re.compile(r"(?!\.)[\w.-]+", re.ASCII)
_LIBRARIES = ("libtriton_*.so", "batchstrategy.so", "triton_python_backend_stub")
_MAX_DIRECTORIES = 10_000
_MAX_ENTRIES = 1_000_000
"""Of all these directories together, those that links lead to counted each time."""
_BLOCK = 2**20
_CODE_PARAMETERS = ("EXECUTION_ENV_PATH", "TRITON_BATCH_STRATEGY_PATH")


def is_safe_name(name: str) -> bool:
    """Return whether a shell reads the name of a model as one word; Triton's Python backend passes it to bash unquoted.

    >>> [is_safe_name(name) for name in ("bert-base_v1.5", "x$(date)y", "a b", "../a", "..", "")]
    [True, False, False, False, False, False]
    """
    return _WORD.fullmatch(name) is not None and name not in {".", ".."}


def read_refusals(model: Path) -> tuple[str, ...]:
    """Return why Triton may not load a model as its files are; empty when it may.

    Raises:
        ConfigError: config.pbtxt cannot be parsed.
        OSError: A file cannot be read.
    """
    return _limited(model, partial(_read_refusals, model))


def _limited(model: Path, reasons: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """Return the result of a function, or that the model exceeds the limit on reading it."""
    try:
        with work_limit(f"model {model.name}"):
            return reasons()
    except WorkLimitError as error:
        raise_if_exceeded()
        return (error.message,)


def _read_refusals(model: Path) -> tuple[str, ...]:
    path = model / CONFIG_FILE
    try:
        config = parse_file(path, f"{model.name}/{CONFIG_FILE}") if os.path.lexists(path) else empty_config()
    except ForeignLinkError as error:
        return (str(error),)
    except OSError as error:
        return (f"{CONFIG_FILE} cannot be read: {error.strerror}",)
    if config.name not in {"", model.name}:
        return (f"{CONFIG_FILE} has the name {config.name!r}, which is not the name of the directory",)
    return load_refusals(model, config)


def load_refusals(model: Path, config: ModelConfig) -> tuple[str, ...]:
    """Return why Triton may not load a model with a config: its code, files elsewhere, or a cycle of ensembles.

    Raises:
        OSError: A directory cannot be read.
    """
    return _limited(model, partial(_load_refusals, model, config))


def _load_refusals(model: Path, config: ModelConfig) -> tuple[str, ...]:
    if reasons := refusals(model, config) or tuple(_files_elsewhere(model, config)):
        return reasons
    reason = steps_reason(config, model.name, model.parent)
    return (reason,) if reason else ()


def require_admitted(model: Path, text: str, published: Path | None = None) -> None:
    """Require that Triton may load a staged model, before it is published.

    Args:
        model: Its directory.
        text: Text of its config.pbtxt.
        published: The directory that the version is moved into; it need not exist. Triton would also run code that
            is there already, for example next to versions that repogen did not build.

    Raises:
        ConfigError: It may not; the message has every reason.
        OSError: A directory cannot be read.
    """
    config = parse(text, f"config.pbtxt of {model.name}")
    existing = refusals(published, config) if published is not None and is_directory(published) else ()
    if reasons := (*load_refusals(model, config), *foreign_backend(model, config), *existing):
        raise ConfigError(
            f"{model.name} would run code, or use files outside of its directory:\n" + "\n".join(reasons),
            "remove these files and settings; only Python models may contain code",
            code="config.not-admitted",
        )


def refusals(model: Path, config: ModelConfig) -> tuple[str, ...]:
    """Return why Triton may not load a model with a config; empty when it may.

    A Python model runs its code by design. No other model may run any.

    Raises:
        OSError: A directory cannot be read.
    """
    return tuple(_refusals(model, config))


def _files_elsewhere(model: Path, config: ModelConfig) -> Iterator[str]:
    """Yield the files that a model would read outside of its directory, or through links that leave the repository."""
    for field, name in model_filenames(config):
        if leaves(name.lstrip("/")):
            yield f"{field} {name!r} is outside of the version's directory"
    for file in data_files(config):
        path = model / file.path  # the model's directory may be a link itself
        if leaves(file.path):
            yield f"{file.field} {file.name!r} is outside of the model's directory"
        elif not (is_inside(path, model.parent) or is_inside(path, model)):
            yield f"{file.field} {file.name!r} is a link that leads out of the repository"
    for path in _graph_files(model, config):
        yield from (f"{path.relative_to(model.parent)}{problem}" for problem in _external_problems(path))


def _graph_files(model: Path, config: ModelConfig) -> Iterator[Path]:
    """Yield the ONNX files of a model, and those that its config names; a directory may take the place of one."""
    names = [name.lstrip("/") for _, name in model_filenames(config)]
    files: dict[str, Path] = {}  # links and names such as "a/../model.onnx" can lead to one file thousands of times
    for version in sorted(entry for entry in model.iterdir() if is_directory(entry)):
        paths = [path for path in version.iterdir() if path.suffix == ".onnx"]
        for path in sorted({*paths, *(version / name for name in names)}, key=lambda path: (len(path.parts), path)):
            for entry in (path, path / MODEL_FILE):
                files.setdefault(os.path.join(str(real_path(entry.parent)), entry.name), entry)  # noqa: PTH118 - text
    yield from (file for file in files.values() if is_file(file))


def _external_problems(path: Path) -> Iterator[str]:
    status = path.stat()
    external = _external_data(_GraphFile(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    if external.problem:
        yield f" {external.problem}, so it is not known which files it reads"
    for location in sorted(external.locations):
        if _is_elsewhere(path, location):
            yield f": external data {location!r} is outside of its directory"


@dataclass(frozen=True)
class _ExternalData:
    """Where the external data of a graph is.

    Attributes:
        locations: As the graph declares them.
        problem: Why they are not known; empty if they are.
    """

    locations: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(frozen=True)
class _GraphFile:
    """An ONNX file; equal to another one with the same content, whatever its path is."""

    path: Path = dataclass_field(compare=False)
    device: int
    inode: int
    size: int
    mtime: int


@lru_cache(maxsize=4096)
def _external_data(file: _GraphFile) -> _ExternalData:
    """Return where the external data of a graph is.

    A file that cannot be parsed here may still be a graph for the server's parser.
    """
    from repogen.onnx_graph.external_data import external  # noqa: PLC0415 - `doctor` does not need onnx
    from repogen.onnx_graph.facts import parse_model  # noqa: PLC0415 - the same

    try:
        if not _contains(file.path, b"location"):  # the key of every reference; without one, it need not be parsed
            return _ExternalData()
        return _ExternalData(frozenset(entry.location for entry in external(parse_model(file.path))))
    except OSError as error:
        return _ExternalData(problem=f"cannot be read: {reason(error)}")
    except ContentError as error:
        return _ExternalData(problem=str(error))


def _contains(path: Path, word: bytes) -> bool:
    """Return whether a file contains a word; the memory does not depend on the file's size."""
    tail = b""
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            if word in tail + block:
                return True
            tail = block[-len(word) :]
    return False


def _is_elsewhere(path: Path, location: str) -> bool:
    from repogen.onnx_graph.external_data import leads_out  # noqa: PLC0415 - as above

    return leads_out(location) or not is_inside(path.parent / location, path.parent)


def _has_too_many_links(model: Path) -> bool:
    """Return whether links lead to more directories and files than a model has; Triton follows all of them."""
    directories, entries, pending = 0, 0, [model]
    while pending and directories <= _MAX_DIRECTORIES and entries <= _MAX_ENTRIES:
        directories += 1
        try:
            for entry in pending.pop().iterdir():
                entries += 1
                if is_directory(entry):
                    pending.append(entry)
        except OSError as error:
            if error.errno != errno.ELOOP:  # more links in one path than the kernel follows, also for Triton
                raise
    return directories > _MAX_DIRECTORIES or entries > _MAX_ENTRIES


def _refusals(model: Path, config: ModelConfig) -> Iterator[str]:
    if _has_too_many_links(model):
        yield f"its links lead to more than {_MAX_DIRECTORIES} directories or {_MAX_ENTRIES} files, which Triton reads"
        return
    if link := foreign_link_in(model):
        yield f"{link} {FOREIGN_LINK}"
        return
    if not is_safe_name(model.name):
        yield f"the directory's name {model.name!r} has characters that Triton's Python backend passes to a shell"
    yield from _shell_values(config)
    yield from _names_of_libraries(config)
    if not is_python(model, config):
        yield from _code(config)
        # a runtime with the signs of a pattern is not a plain name
        for path in (path for directory in _directories(model) for path in sorted(directory.iterdir())):
            if path.name == config.runtime or any(fnmatchcase(path.name, pattern) for pattern in _LIBRARIES):
                yield f"{path.relative_to(model.parent)} is a file that Triton would run as code"


def _code(config: ModelConfig) -> Iterator[str]:
    """Yield the fields that name code."""
    for key in _CODE_PARAMETERS:
        if key in config.parameters:
            yield f"the parameter {key} runs code, and the model is not a Python model"
    if any(config.model_operations.op_library_filename):
        yield "model_operations.op_library_filename runs code, and the model is not a Python model"
    for field, value, is_library in accelerator_files(config):
        if is_library:
            yield f"{field} loads the libraries {value!r} as code"
    for field, value in session_files(config):
        yield f"{field} makes ONNX Runtime read or write files of the server: {value!r}"


def _shell_values(config: ModelConfig) -> Iterator[str]:
    """Yield the values that become part of the command line of a Python stub."""
    values = [(f"instance_group[{index}].name", group.name) for index, group in enumerate(config.instance_group)]
    values.append(("default_model_filename", config.default_model_filename))
    for field, value in values:
        if value and not _PATH.fullmatch(value):
            yield f"{field} {value!r} has characters that Triton's Python backend passes to a shell"


def _names_of_libraries(config: ModelConfig) -> Iterator[str]:
    """Yield the names by which Triton would leave its own directories of libraries."""
    names = [("backend", config.backend), ("runtime", config.runtime)]
    agents = config.model_repository_agents.agents
    names += [(f"model_repository_agents.agents[{index}].name", agent.name) for index, agent in enumerate(agents)]
    for field, name in names:
        if name and not _PLAIN.fullmatch(name):
            yield f"{field} {name!r} is not a plain name, so Triton could run a library from anywhere"


def is_python(model: Path, config: ModelConfig) -> bool:
    """Return whether Triton runs a model's own code: it is a Python model.

    A model.py next to the file of another model is not run.

    Raises:
        OSError: A directory cannot be read.
    """
    if config.backend or config.platform or config.HasField("ensemble_scheduling"):
        return bool(config.backend == "python")
    return any((directory / PYTHON_FILE).exists() for directory in _directories(model))


def unexamined_code(model: Path, config: ModelConfig) -> str:
    """Return which code Triton may run for a model, and which repogen does not examine; empty for ONNX and ensembles.

    A model of another backend is code, or has a format that may contain code: TorchScript and TensorFlow have operators
    that read and write files, and an engine of TensorRT is code.

    Raises:
        OSError: A directory cannot be read.
    """
    if is_python(model, config):
        return "Triton runs its model.py"
    if is_ensemble(config):
        return ""
    backend = config.backend or config.platform
    if not backend:  # Triton derives it from the name of the file
        names = {path.name for directory in _directories(model)[1:] for path in directory.iterdir()}
        names = {config.default_model_filename} if config.default_model_filename else names & {*MODEL_FILES}
        return "" if all(name.endswith(".onnx") for name in names) else f"Triton loads its {listed(sorted(names))}"
    return "" if is_onnx(config) else f"Triton's backend {backend!r} may run code in its files"


def foreign_backend(model: Path, config: ModelConfig) -> tuple[str, ...]:
    """Return the reason for which a version with a manifest is rejected; empty for one that repogen could have built.

    repogen builds ONNX models, Python models and ensembles: a manifest does not make a model of another backend one
    that was verified. It could have been written by hand.

    Raises:
        OSError: A directory cannot be read.
    """
    code = "" if is_python(model, config) else unexamined_code(model, config)
    return (f"{code}, and repogen builds no such models",) if code else ()


def requirements_of(model: Path, config: ModelConfig, versions: Iterable[Path]) -> list[str]:
    """Return the packages that versions of a Python model require, each ``name==version``.

    Empty for another model: packages run code when Python starts, and a requirements.txt may be next to any model.

    Args:
        model: The model's directory.
        config: Its config.
        versions: The directories of the versions.

    Raises:
        MalformedRecordError: A requirements.txt cannot be read.
        OSError: A directory cannot be read.
    """
    return [line for version in versions for line in requirements_in(version)] if is_python(model, config) else []


def _directories(model: Path) -> list[Path]:
    return [model, *sorted(entry for entry in model.iterdir() if entry.is_dir())]
