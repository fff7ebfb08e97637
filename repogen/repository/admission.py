"""Which models of a repository Triton may load: those of which it runs no code, except the code of a Python model.

Sources: Triton 24.10, ``src/backend_model.cc`` and ``src/repo_agent.cc`` of triton-inference-server/core, where backend
libraries are searched in the version's and the model's directory before the backend's; ``src/stub_launcher.cc`` of
triton-inference-server/python_backend, which passes names to ``bash -c`` unquoted.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, PYTHON_FILE
from repogen.triton_config.text.parse import empty_config, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.triton_config.text.parse import ModelConfig

_WORD = re.compile(r"[\w.@%+=:,-]+")
_PATH = re.compile(r"[\w.@%+=:,/-]+")
_PLAIN = re.compile(r"(?!\.)[\w.-]+", re.ASCII)
_LIBRARIES = ("libtriton_*.so", "batchstrategy.so", "triton_python_backend_stub")
_MAX_CONFIG_BYTES = 64 * 2**20
_CODE_PARAMETERS = ("EXECUTION_ENV_PATH", "TRITON_BATCH_STRATEGY_PATH")


def is_safe_name(name: str) -> bool:
    """Return whether a shell reads the name of a model as one word; Triton's Python backend passes it to bash unquoted.

    >>> [is_safe_name(name) for name in ("bert-base_v1.5", "x$(date)y", "a b", "../a", "")]
    [True, False, False, False, False]
    """
    return _WORD.fullmatch(name) is not None


def read_refusals(model: Path) -> tuple[str, ...]:
    """Return why Triton may not load a model as its files are; empty when it may.

    Raises:
        ConfigError: config.pbtxt cannot be parsed.
        OSError: A file cannot be read.
        UnicodeDecodeError: config.pbtxt is not UTF-8.
    """
    path = model / CONFIG_FILE
    if path.exists() and not path.is_file():
        return (f"{CONFIG_FILE} is not a regular file",)
    if path.exists() and path.stat().st_size > _MAX_CONFIG_BYTES:
        return (f"{CONFIG_FILE} is larger than {_MAX_CONFIG_BYTES >> 20} MiB",)
    text = path.read_text(encoding="utf-8") if path.exists() else None
    config = empty_config() if text is None else parse(text, f"{model.name}/{CONFIG_FILE}")
    return refusals(model, config)


def refusals(model: Path, config: ModelConfig) -> tuple[str, ...]:
    """Return why Triton may not load a model with a config; empty when it may.

    A Python model runs its code by design. No other model may run any.

    Raises:
        OSError: A directory cannot be read.
    """
    return tuple(_refusals(model, config))


def _refusals(model: Path, config: ModelConfig) -> Iterator[str]:
    if not is_safe_name(model.name):
        yield f"the directory's name {model.name!r} has characters that Triton's Python backend passes to a shell"
    yield from _shell_values(config)
    yield from _names_of_libraries(config)
    directories = [model, *sorted(entry for entry in model.iterdir() if entry.is_dir())]
    if not _is_python(config, directories):
        yield from _code(config)
        patterns = (*_LIBRARIES, config.runtime) if config.runtime else _LIBRARIES
        for path in (path for directory in directories for path in sorted(directory.iterdir())):
            if any(fnmatchcase(path.name, pattern) for pattern in patterns):
                yield f"{path.relative_to(model.parent)} is a file that Triton would run as code"


def _code(config: ModelConfig) -> Iterator[str]:
    """Yield the fields that name code."""
    for key in _CODE_PARAMETERS:
        if key in config.parameters:
            yield f"the parameter {key} runs code, and the model is not a Python model"
    if any(config.model_operations.op_library_filename):
        yield "model_operations.op_library_filename runs code, and the model is not a Python model"


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


def _is_python(config: ModelConfig, directories: list[Path]) -> bool:
    if config.backend or config.platform or config.HasField("ensemble_scheduling"):
        return bool(config.backend == "python")
    return any((directory / PYTHON_FILE).exists() for directory in directories)
