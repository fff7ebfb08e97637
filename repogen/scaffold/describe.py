"""Detects what kind of model a path is and describes it, without running or unpickling anything."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import SourceError, SpecError
from repogen.files.archive import open_archive
from repogen.files.content import ContentError
from repogen.files.paths import require_no_foreign_link
from repogen.files.replacement import trust_of
from repogen.files.url import is_url
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.layout import is_model, models_of
from repogen.scaffold.code import describe_callable, model_callables, relative_reference
from repogen.scaffold.description import NO_HINTS, Hints, ModelDescription, SpecDescription, flow, model_name
from repogen.scaffold.model_files import describe_onnx, describe_program, describe_script, pickled_class
from repogen.source.huggingface.checkpoint import CONFIG, ConfigFile, read_json
from repogen.spec.models import MODEL_NAME, MODEL_NAME_RULE
from repogen.spec.problems import printable

if TYPE_CHECKING:
    from repogen.files.replacement import Identity, Trust

_CALLABLE = re.compile(r"(?P<module>.+\.py|[^\W\d][\w.]*):(?P<attribute>[^\W\d][\w.]*)")
_FILE_AND_MORE = re.compile(r"(?P<file>.+\.py)\W.*", re.DOTALL)
_WEIGHTS_SUFFIXES = {".safetensors", ".pth", ".pt", ".ckpt"}
_WEIGHTS_FILES = ("*.safetensors", "pytorch_model*.bin")
_SUPPORTED = (
    "a Triton repository or a model in one, an .onnx file, a Hugging Face directory (with config.json), a .pt2 file of "
    "torch.export, a TorchScript archive, or file.py:callable"
)


def describe(path: str, directory: Path, hints: Hints = NO_HINTS) -> SpecDescription:
    """Detect what a path is and describe the spec for it.

    Args:
        path: A file or directory relative to the working directory, ``file.py:callable``, or ``module:callable``. A
            directory is a Triton repository, a model in one, or a Hugging Face model.
        directory: Directory of the new spec; paths in the spec are relative to it.
        hints: What the user knows about the model.

    Raises:
        SpecError: The path does not exist, or is behind a symlink of another user; a hint does not apply; or it is not
            a supported kind of model.
        MissingExtraError: A package that reads this kind of file is not installed.
        WorkLimitError: The models need too much time or memory.
    """
    trust = trust_of(next(filter(Path.is_dir, (directory, *directory.absolute().parents))))
    with work_limit(path):
        before = _identities(path, trust)
    described = _describe(path, directory, hints)
    if _identities(path, trust) != before:
        raise SpecError(
            f"{path} changed while it was read, and another user can replace its files",
            "run the command again, or copy the files to a directory of yours",
            code="init.from",
        )
    return described


def _identities(path: str, trust: Trust) -> dict[str, Identity]:
    """Return the identity of each file, and of what leads to it, that another user could replace."""
    source = Path(path)
    files = trust.files([source]) if source.is_dir() else iter([source] if source.exists() else ())
    return dict(chain.from_iterable(map(trust.replaceable, files)))


def _describe(path: str, directory: Path, hints: Hints) -> SpecDescription:
    if is_repository(Path(path)):
        _require_no(hints, "a Triton repository", "weights", "examples", "name")
        from repogen.scaffold.repository import describe_repository  # noqa: PLC0415 - parses configs and graphs

        with work_limit(path, COMMAND_SECONDS):
            return describe_repository(Path(path), directory)
    with work_limit(path):
        return SpecDescription((describe_model(path, directory, hints),))


def require_local(source: str) -> None:
    """Require that the source of ``--from`` is not a URL.

    Raises:
        SpecError: It is.
    """
    if is_url(source):
        raise SpecError(
            "--from needs a directory or file on this machine, not a URL",
            "copy it to a directory first, for example with the tools of the store",
            code="init.from",
        )


def require_model_name(name: str) -> None:
    """Require that a spec accepts the value of ``--name``.

    Raises:
        SpecError: It does not.
    """
    if not re.fullmatch(MODEL_NAME, name):
        raise SpecError(f'--name: "{printable(name)}" is not a valid model name', MODEL_NAME_RULE, code="init.from")


def _require_no(hints: Hints, subject: str, *names: str) -> None:
    """Require that the user gave no hint that does not apply.

    Raises:
        SpecError: There is one.
    """
    options = [f"--{name}" for name in names if getattr(hints, name) is not None]
    if options:
        raise SpecError(f"{' and '.join(options)} cannot be used for {subject}", "omit the option", code="init.from")


def describe_model(path: str, directory: Path, hints: Hints = NO_HINTS) -> ModelDescription:
    """Describe a single model; arguments and errors are those of ``describe``."""
    model_path = Path(path)
    reference = _CALLABLE.fullmatch(path)
    if not model_path.exists() and reference is not None:
        return describe_callable(reference["module"], reference["attribute"], directory, hints)
    if not model_path.exists():
        raise _missing_error(path)
    require_no_foreign_link(model_path)
    _require_no(hints, "a model in a file", "weights")
    relative = os.path.relpath(model_path, directory)
    described = (
        _describe_directory(model_path, relative) if model_path.is_dir() else _describe_file(model_path, relative)
    )
    if hints.examples is not None:
        lines = [line for line in described.keys if "examples:" not in line]
        described = replace(
            described, keys=(f"examples: {flow(relative_reference(hints.examples, directory))}", *lines)
        )
    return described if hints.name is None else replace(described, name=hints.name)


def is_repository(path: Path) -> bool:
    """Return whether a directory is a Triton model, or contains some."""
    return path.is_dir() and (is_model(path) or any(is_model(path / name) for name in models_of(path)))


def _describe_file(path: Path, relative: str) -> ModelDescription:
    if path.suffix == ".onnx":
        return describe_onnx(path, relative)
    if path.suffix == ".py":
        raise _unsupported_error(
            str(path), f"is a Python file: name the callable that returns the model, as in {path}:build"
        )
    names = _archive_members(path)
    if any(name.endswith("models/model.json") for name in names):
        return describe_program(path, relative)
    if any(name.endswith("/constants.pkl") for name in names):
        return describe_script(path, relative)
    if any(name.endswith("data.pkl") for name in names) or path.suffix in _WEIGHTS_SUFFIXES:
        if pickled := pickled_class(path):
            raise _unsupported_error(
                str(path),
                f"contains {pickled}, and loading it would run code: save its state_dict, and name the callable that "
                "returns the model, as in models.py:build",
            )
        raise _unsupported_error(
            str(path), "contains only weights: name the callable that returns the model, as in models.py:build"
        )
    raise _unsupported_error(str(path), "is not a supported model format")


def _describe_directory(path: Path, relative: str) -> ModelDescription:
    """Describe a directory that ``save_pretrained`` wrote; transformers is not required.

    Raises:
        SpecError: The directory has no valid ``config.json`` of a model.
    """
    if not (path / CONFIG).is_file():
        raise SpecError(
            f"{path} has no config.json, so it is not a Hugging Face model",
            "specify the directory that save_pretrained wrote, or a file in this directory",
            code="init.from",
        )
    try:
        config = read_json(path / CONFIG, ConfigFile)
    except SourceError as error:
        raise SpecError(f"{path}: {error.message}", error.hint, code="init.from") from error
    if not config.model_type:
        raise SpecError(f"{path / CONFIG} has no model_type", "check that it is a transformers model", code="init.from")
    architectures = ", ".join(config.architectures or ()) or "not specified"
    weights = sorted(file.name for pattern in _WEIGHTS_FILES for file in path.glob(pattern))
    comments = [
        f"Model type {config.model_type}, architecture {architectures} (config.json).",
        f"Weights: {', '.join(weights[:3])}" if weights else "CHECK: the directory has no weights.",
        "config.json determines the task, and the task determines inputs, outputs and dynamic dims; or set task: …",
    ]
    if config.has_remote_code:
        comments.append(
            "CHECK: it requires its own Python code. If you trust that code, add trust_remote_code: true to source."
        )
    note = "" if weights else f"put the weights into {path}"
    source: dict[str, object] = {"kind": "huggingface", "model": relative}
    return ModelDescription(model_name(path.resolve().name), source, tuple(comments), (), note)


def _archive_members(path: Path) -> tuple[str, ...]:
    try:
        with open_archive(path) as archive:
            return archive.names
    except (OSError, ContentError):
        return ()


def _missing_error(path: str) -> SpecError:
    """Return the error for a path that does not exist; if it starts with a Python file, it says how to name a callable.

    For example ``net.py::Net``, ``net.py.Net`` or ``net.py:Net()``.
    """
    match = _FILE_AND_MORE.fullmatch(path)
    if match is None or not Path(match["file"]).is_file():
        return _unsupported_error(path, "does not exist")
    file = match["file"]
    names = " or ".join(model_callables(Path(file)))
    return SpecError(
        f"{path} does not name a callable in {file}",
        f"write {file}:CALLABLE{f', where CALLABLE is {names}' if names else f', such as {file}:build'}",
        code="init.from",
    )


def _unsupported_error(path: str, problem: str) -> SpecError:
    return SpecError(f"{path} {problem}", f"--from accepts {_SUPPORTED}", code="init.from")
