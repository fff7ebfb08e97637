"""Describes the models of a Triton repository that was written by hand: config.pbtxt and model files become a spec.

The spec's config is rendered and compared with the existing one; what differs is listed in comments.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass, replace
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from repogen.artifacts.file_names import CONFIG_FILE, MAX_CONFIG_BYTES, PYTHON_FILE, REQUIREMENTS_FILE, RESERVED_FILES
from repogen.artifacts.named_file import NamedFile
from repogen.artifacts.steps import PINNED
from repogen.artifacts.tensors import DTYPES, Signature, TensorSpec
from repogen.check.files import model_file
from repogen.errors import ConfigError, RepogenError, SpecError
from repogen.files import MAX_TEXT_BYTES, is_directory, is_file, is_inside, open_inside, read_inside
from repogen.files.content import ContentError, read_stream
from repogen.files.paths import FOREIGN_LINK, foreign_link_in
from repogen.files.resolve import resolved
from repogen.files.work_limit import raise_if_exceeded, work_limit
from repogen.onnx_graph.facts import read_graph
from repogen.repository.filesystem import opened_directory
from repogen.repository.layout import code_file, directory_of_step, is_model, latest_version, models_of, requirements_in
from repogen.repository.publish import is_foreign
from repogen.scaffold.config_section import compared, ensemble_steps, triton_section
from repogen.scaffold.description import CopiedFile, ModelDescription, SpecDescription
from repogen.scaffold.model_files import describe_onnx
from repogen.spec.models import MODEL_NAME
from repogen.spec.paths import check_repository
from repogen.spec.python_names import parse_code
from repogen.spec.scalars import ScalarError, resolve_plain
from repogen.spec.sources import PythonSource
from repogen.triton_config.render.expected import expected_config
from repogen.triton_config.render.model_facts import ModelFacts
from repogen.triton_config.rules.file_names import data_files, leaves
from repogen.triton_config.rules.identity import ONNX_BACKEND, is_ensemble, is_onnx
from repogen.triton_config.text.parse import PbtxtError, empty_config, parse
from repogen.triton_config.text.view import tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from repogen.triton_config.sections.model import TritonSpec
    from repogen.triton_config.text.parse import ModelConfig
    from repogen.triton_config.text.view import TensorView

_GIT = frozenset({".git", "head"})
"""Git takes a directory for a repository only if it has a file HEAD; a file .git names another repository."""
_CODE = (*all_suffixes(), ".pth", ".pyw")
_MAX_SIZE = 16
"""Assumed maximum of a dynamic dim that config.pbtxt does not bound."""
_MAX_LISTED = 5
"""Lines of a requirements.txt in one note."""
COPIES_DIRECTORY = "model_files"
"""Directory of copies: the author of a repository chooses the names in it, so it has no other files."""
_DTYPES = {dtype.triton: dtype.name for dtype in DTYPES.values() if dtype.name != "bfloat16"}


@dataclass(frozen=True)
class _Existing:
    """A model of the repository.

    Attributes:
        directory: Its directory.
        config: Its config.pbtxt; empty if it has none.
        has_config: Whether it has one.
        spec_dir: Directory of the new spec.
        root: The model's directory without symlinks: that of the config.pbtxt.
    """

    directory: Path
    config: ModelConfig
    has_config: bool
    spec_dir: Path
    root: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def version_dir(self) -> Path:
        return self.directory / str(latest_version(self.directory) or 1)

    def relative(self, path: Path) -> str:
        """Return a path relative to the spec."""
        return os.path.relpath(path, self.spec_dir)

    @property
    def files_dir(self) -> str:
        """The directory of its published files, relative to the spec: its own, or one for copies next to the spec."""
        is_below = is_inside(self.directory, self.spec_dir)
        return self.relative(self.directory) if is_below else f"{COPIES_DIRECTORY}/{self.name}"

    def require_own_files(self, paths: Iterable[Path]) -> None:
        """Require files that are in the model's directory, by their names and after links.

        Raises:
            SpecError: One is not; a build would publish a file that does not belong to the model.
        """
        for path in paths:
            if leaves(os.path.relpath(path, self.directory)) or not is_inside(path, self.directory):
                raise _unsupported(f"{self.relative(path)} is not in the model's directory, or is a link out of it")

    def published(self, path: Path) -> str:
        """Return the path in the spec of a file that a build publishes."""
        return f"{self.files_dir}/{os.path.relpath(path, self.directory)}"

    def copies(self, paths: Iterable[Path]) -> dict[str, CopiedFile]:
        """Return the published files that have to be copied into the spec's directory, by their path there.

        Raises:
            SpecError: A file is hidden, or has a name that Python or Git uses: the copy belongs to the user, and could
                run code as the user.
        """
        if is_inside(self.directory, self.spec_dir):
            return {}
        for path in self.named_files:
            if path.name.endswith(_CODE):
                name = self.relative(path)
                raise _unsupported(f"{name} has the name of a Python file, and would be copied next to the spec")
            if any(part.startswith(".") for part in path.relative_to(self.directory).parts):
                raise _unsupported(f"{self.relative(path)} is hidden, and would be copied next to the spec")
        for path in (*paths, *self.named_files):
            if path.name.casefold() in _GIT:
                name = self.relative(path)
                raise _unsupported(f"{name} has a name that Git uses, and would be copied next to the spec")
        files = (CopiedFile(path, self.directory, self.root) for path in (*paths, *self.named_files) if is_file(path))
        return {self.published(file.path): file for file in files}

    @property
    def named_files(self) -> list[Path]:
        """The files that its config names, which need not exist."""
        return [self.directory / file.path for file in data_files(self.config)]


def describe_repository(path: Path, spec_dir: Path) -> SpecDescription:
    """Describe a model directory with the models that its ensemble uses, or all models of a repository.

    Args:
        path: The directory.
        spec_dir: Directory of the new spec.

    Raises:
        SpecError: No model can be described.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - without following links, which name the models
    if problem := next(check_repository(str(path if not is_model(path) else path.parent), None, spec_dir), None):
        raise SpecError(
            f"the repository {problem.what}",
            f"write the spec elsewhere: repogen init ELSEWHERE --from {path}",
            code="init.from",
        )
    root, pending = (path.parent, [path.name]) if is_model(path) else (path, list(models_of(path)))
    models: dict[str, ModelDescription] = {}
    steps: dict[str, list[str]] = {}
    omitted: dict[str, str] = {}
    while pending:
        name = pending.pop(0)
        if name in models or name in omitted:
            continue
        try:
            directory = directory_of_step(root, name)
            if directory is None:
                raise _unsupported("it is not in the repository")
            with work_limit(f"model {name}"):
                existing = _read(directory, spec_dir)
                models[name] = _describe(existing)
            steps[name] = [step.model_name for step in existing.config.ensemble_scheduling.step]
            pending += steps[name]
        except RepogenError as error:
            raise_if_exceeded()
            omitted[name] = error.record.summary
    while incomplete := {name: step for name in models for step in steps[name] if step not in models}:
        omitted |= {name: f"its step {step} cannot be described" for name, step in incomplete.items()}
        models = {name: model for name, model in models.items() if name not in incomplete}
    reasons = _by_reason(omitted)
    if not models:
        raise SpecError(
            f"{path} has no model that a spec can describe: {'; '.join(reasons)}", _SUPPORTED, code="init.from"
        )
    return SpecDescription(
        tuple(models.values()),
        os.path.relpath(root, spec_dir),
        reasons,
        adopt=tuple(name for name in models if is_foreign(root / name)),
    )


def _by_reason(omitted: dict[str, str]) -> tuple[str, ...]:
    """Return one line per reason, with the names of the models.

    >>> _by_reason({"a": "no file", "b": "no config", "c": "no file"})
    ('a, c: no file', 'b: no config')
    """
    names: dict[str, list[str]] = {}
    for name, reason in omitted.items():
        names.setdefault(reason, []).append(name)
    return tuple(f"{', '.join(models)}: {reason}" for reason, models in names.items())


_SUPPORTED = "repogen supports ONNX models, code for the Python backend, and ensembles of these"


def _read(directory: Path, spec_dir: Path) -> _Existing:
    """Read a config.pbtxt; a model without one has an empty config.

    Raises:
        SpecError: The name is not possible in a spec, or the config cannot be read.
    """
    if not re.fullmatch(MODEL_NAME, directory.name):
        raise _unsupported(f"{directory.name!r} cannot be the name of a model in a spec")
    if link := foreign_link_in(directory):
        raise _unsupported(f"{link} {FOREIGN_LINK}")
    file, root, has_config = directory / CONFIG_FILE, resolved(directory), True
    try:
        with opened_directory(root) as opened:  # another user may replace it by a link to files that it would name
            root = root if opened == root else opened.readlink()
            with open_inside(opened / CONFIG_FILE, directory, root) as stream:
                config = parse(read_stream(stream, MAX_CONFIG_BYTES).decode(), str(file))
    except FileNotFoundError:
        config, has_config = empty_config(), False
    except OSError as error:
        raise _unsupported(f"{file} cannot be read: {error.strerror}") from error
    except (ContentError, UnicodeDecodeError) as error:
        raise _unsupported(f"{file} {error if isinstance(error, ContentError) else 'is not UTF-8'}") from error
    except PbtxtError as error:
        raise _unsupported(f"{error.message}; run `repogen check`") from error
    if not is_model(directory):
        raise _unsupported("it has no model file")
    return _Existing(directory, config, has_config, spec_dir, root)


def _describe(existing: _Existing) -> ModelDescription:
    config = existing.config
    if config.model_transaction_policy.decoupled:
        raise _unsupported("it is decoupled, and repogen does not build models that return several responses")
    existing.require_own_files(existing.named_files)
    if is_ensemble(config):
        return _ensemble(existing)
    if config.backend == "python":
        return _python(existing)
    file = model_file(existing.version_dir, config)
    if is_onnx(config) and file is not None and file.suffix == ".onnx":
        return _onnx(existing, file)
    if is_onnx(config):
        name = config.default_model_filename or "model.onnx"
        raise _unsupported(f"{name!r:.80} is not an .onnx file in the directory of the served version")
    kind = f"backend {config.backend}" if config.backend else f"platform {config.platform or 'unknown'}"
    raise _unsupported(f"{kind} is not supported")


def _onnx(existing: _Existing, file: Path) -> ModelDescription:
    facts, findings = read_graph(file)
    if facts is None:
        raise _unsupported(f"{existing.relative(file)}: {findings[0].message}")
    signature, config = facts.signature, existing.config
    section, spec, notes = triton_section(config, existing.files_dir, signature)
    unknown = [
        tensor.dtype for tensor in (*signature.inputs, *signature.outputs) if tensor.dtype not in _DTYPES.values()
    ]
    notes += [f"data type {dtype} is not supported" for dtype in unknown]
    if not existing.has_config:
        del section["max_batch_size"]  # a build measures it
    elif not unknown:
        notes += _differences(existing, spec, signature, ONNX_BACKEND)
    keys: dict[str, object] = {}
    batch = signature.batch_dim
    if config.max_batch_size > 0 and batch is not None and batch.isidentifier():
        keys["dims"] = {batch: {"min": 1, "max": max(config.max_batch_size, 2)}}
    described = describe_onnx(file, existing.relative(file))
    hints = tuple(
        line
        for line in described.keys
        if line.startswith("# ") and not (existing.has_config and "dims: {batch" in line)
    )
    remarks = _not_expressed(notes) if existing.has_config else _without_config(existing.name, notes)
    return replace(
        described,
        name=existing.name,
        comments=(*described.comments, *remarks),
        keys=(*_yaml_lines({**keys, "triton": section}), *hints),
        copies=existing.copies(()),
    )


def _python(existing: _Existing) -> ModelDescription:
    config = existing.config
    file = code_file(existing.version_dir)
    if not is_file(file):
        raise _unsupported(f"{existing.relative(file)} does not exist")
    ignored = {file.name, PYTHON_FILE, "__pycache__"}  # with packed packages, model.py is generated
    others = sorted(entry for entry in existing.version_dir.iterdir() if entry.name not in ignored)
    present = [entry for entry in others if is_file(entry)]
    existing.require_own_files([file, *present])
    own = {REQUIREMENTS_FILE} if is_foreign(existing.directory) else RESERVED_FILES
    data = [entry for entry in present if entry.name not in own]
    requirements, unpinned = _requirements(existing.version_dir)
    signature = _config_signature(config)
    section, spec, notes = triton_section(config, existing.files_dir, signature)
    source: dict[str, object] = {"kind": "python", "path": existing.relative(file)}
    if data:
        source["data"] = [existing.published(entry) for entry in data]
    if requirements:
        source["requirements"] = requirements
    notes += [f"the directory {entry.name}/ next to {PYTHON_FILE}" for entry in others if is_directory(entry)]
    keys: dict[str, object] = {
        "inputs": {tensor.name: _declared(tensor, values=True) for tensor in signature.inputs},
        "outputs": {tensor.name: _declared(tensor) for tensor in signature.outputs},
        "dims": {
            dim: {"min": 1, "max": max(config.max_batch_size, 2) if dim == signature.batch_dim else _MAX_SIZE}
            for tensor in signature.inputs
            for dim in tensor.shape
            if isinstance(dim, str)
        },
        "triton": section,
    }
    missing = _missing(existing, signature)
    if signature.inputs and signature.outputs:
        notes += _differences(existing, spec, signature, "python")
    comments = (
        *_guesses(signature),
        *(f"CHECK: {note}." for note in (*unpinned, *_imports(file, existing, source), *_calls(file))),
        *_not_expressed(notes),
    )
    lines = tuple(_yaml_lines({k: v for k, v in keys.items() if v}))
    return ModelDescription(existing.name, source, comments, lines, missing, existing.copies(data))


def _requirements(version_dir: Path) -> tuple[list[str], list[str]]:
    """Return the requirements of a version that a spec accepts, and a note with the lines that it does not accept.

    Raises:
        MalformedRecordError: Its requirements.txt cannot be read.
    """
    lines = [line.partition(" #")[0].rstrip() for line in requirements_in(version_dir)]
    pinned = [line for line in dict.fromkeys(lines) if re.fullmatch(PINNED, line)]
    rejected = [line for line in dict.fromkeys(lines) if not re.fullmatch(PINNED, line)]
    if not rejected:
        return pinned, []
    listed = ", ".join(rejected[:_MAX_LISTED]) + (" …" if len(rejected) > _MAX_LISTED else "")
    return pinned, [f"requirements must be NAME==VERSION; these lines of {REQUIREMENTS_FILE} are not: {listed}"]


def _guesses(signature: Signature) -> Iterator[str]:
    """Yield a note for what config.pbtxt does not have, and the spec therefore guesses."""
    dims = {dim for tensor in signature.inputs for dim in tensor.shape if isinstance(dim, str)} - {"batch"}
    if dims:
        yield f"CHECK the bounds of {', '.join(sorted(map(str, dims)))}: config.pbtxt does not specify them."
    integers = [tensor.name for tensor in signature.inputs if "int" in tensor.dtype]
    if integers:
        yield f"CHECK the range of {', '.join(integers)}: config.pbtxt does not specify it."


def _missing(existing: _Existing, signature: Signature) -> str:
    """Return what the user must add for Python code: config.pbtxt does not contain it."""
    if not signature.inputs or not signature.outputs:
        return f"declare inputs: and outputs: of {existing.name}, as its code expects them"
    if any(tensor.dtype == "string" for tensor in signature.inputs):
        return f"add examples: to {existing.name}, a .npz file or file.py:callable, because random texts may be invalid"
    return ""


def _imports(file: Path, existing: _Existing, source: dict[str, object]) -> Iterator[str]:
    """Yield a note for each package that the code imports."""
    from repogen.source.python.loader import unlisted_imports  # noqa: PLC0415 - for Python code only

    try:
        options = PythonSource.model_validate(source)
        yield from unlisted_imports(file, options.model_copy(update={"path": existing.relative(file)}))
    except (SyntaxError, ValueError, OSError) as error:
        yield f"the code cannot be parsed: {error}"


def _calls(file: Path) -> Iterator[str]:
    """Yield a note for what the code does that a build rejects."""
    try:
        calls = [node.func for node in ast.walk(parse_code(file)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, OSError):  # `_imports` has a note
        return
    names = {function.attr for function in calls if isinstance(function, ast.Attribute)}
    if "InferenceRequest" in names and names & {"exec", "async_exec"}:
        yield "the code calls other models (BLS), which a build rejects: use an ensemble"
    if "get_response_sender" in names:
        yield "the code sends decoupled responses, which a build rejects"


def _ensemble(existing: _Existing) -> ModelDescription:
    config = existing.config
    steps = ensemble_steps(config)
    versions: dict[str, int | None] = {}
    for step in steps:
        if versions.setdefault(step.model, step.version) != step.version:
            raise _unsupported(f"it uses two versions of {step.model}")
    signature = _config_signature(config)
    section, spec, notes = triton_section(config, existing.files_dir, signature)
    notes += _differences(existing, spec, signature, "")
    entries = [
        {
            "model": step.model,
            **({} if step.version is None else {"version": step.version}),
            "inputs": step.inputs,
            "outputs": step.outputs,
        }
        for step in steps
    ]
    if not entries:
        raise _unsupported("the ensemble has no steps")
    keys = {"outputs": [tensor.name for tensor in signature.outputs], "triton": section}
    return ModelDescription(
        existing.name,
        {"kind": "ensemble", "steps": entries},
        tuple(_not_expressed(notes)),
        tuple(_yaml_lines({k: v for k, v in keys.items() if v})),
        copies=existing.copies(()),
    )


def _config_signature(config: ModelConfig) -> Signature:
    """Return the tensors that a config declares, with the batch as the first dim if it batches.

    Raises:
        SpecError: A data type is not supported.
    """
    batched = config.max_batch_size > 0
    inputs = tuple(_tensor(view, batched=batched) for view in tensor_views(config.input))
    return Signature(inputs, tuple(_tensor(view, batched=batched) for view in tensor_views(config.output)))


def _tensor(view: TensorView, *, batched: bool) -> TensorSpec:
    if view.dtype not in _DTYPES:
        raise _unsupported(f"data type {view.dtype} of {view.name!r} is not supported")
    stem = re.sub(r"\W", "_", view.name)
    stem = stem if stem[:1].isalpha() else f"dim_{stem}"
    dims = tuple(dim if dim > 0 else f"{stem[:50]}_{axis}" for axis, dim in enumerate(view.model_dims))
    return TensorSpec(view.name, _DTYPES[view.dtype], ("batch", *dims) if batched else dims)


def _declared(tensor: TensorSpec, *, values: bool = False) -> dict[str, object]:
    entry: dict[str, object] = {"dtype": tensor.dtype, "shape": list(tensor.shape)}
    if values and "int" in tensor.dtype:
        entry["range"] = [0, 1]
    return entry


def _differences(existing: _Existing, triton: TritonSpec, signature: Signature, backend: str) -> list[str]:
    """Return where the config that the spec renders differs from the existing one."""
    config = existing.config
    labels = {output.name: output.label_filename for output in config.output if output.label_filename}
    states = {
        existing.published(existing.directory / "initial_state" / initial.data_file): initial.data_file
        for state in config.sequence_batching.state
        for initial in state.initial_state
        if initial.data_file
    }
    try:
        files = dict(_state_files(existing, states))
        facts = ModelFacts(
            existing.name, signature, config.max_batch_size, labels=labels, states=files, backend=backend
        )
        # there are no golden tensors yet: a warmup with data from a file is listed as a difference
        warmups = tuple(warmup for warmup in triton.model_warmup if warmup.data != "golden")
        rendered = expected_config(triton.model_copy(update={"model_warmup": warmups}), facts, ensemble_steps(config))
    except ConfigError as error:
        return [error.message]
    except (KeyError, OSError) as error:
        return [f"a file of the config: {error}"]
    return compared(config, rendered, existing.name)


def _state_files(existing: _Existing, names: dict[str, str]) -> Iterator[tuple[str, NamedFile]]:
    """Yield the files with initial states of a model, by their path in the spec.

    Raises:
        OSError: One cannot be read, or they are too large together: many links may lead to one file.
    """
    left = MAX_TEXT_BYTES
    for path, name in names.items():
        file = existing.directory / "initial_state" / name
        content = read_inside(file, existing.directory, existing.root, left)
        left -= len(content)
        yield path, NamedFile(name, content)


def _not_expressed(notes: list[str]) -> Iterator[str]:
    if notes:
        yield "Different from config.pbtxt:"
        yield from (f"- {note}" for note in dict.fromkeys(notes))


def _without_config(name: str, notes: list[str]) -> Iterator[str]:
    """Yield what a config.pbtxt would decide."""
    yield f"{name} has no config.pbtxt: Triton assumes that a dynamic first axis is the batch; a build tests it."
    yield "CHECK the batch size: it is the maximum of that dim if rows are independent, unless max_batch_size: is set."
    yield from (f"CHECK: {note}." for note in notes)


class _Dumper(yaml.SafeDumper):
    """Writes text with line breaks as a block, and in quotes what a spec reads as another type, such as 1e3."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    try:
        is_text = isinstance(resolve_plain(text), str)
    except ScalarError:
        is_text = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style if is_text else '"')


_Dumper.add_representer(str, _represent_text)


def _yaml_lines(values: dict[str, object]) -> list[str]:
    text: str = yaml.dump(  # with escapes, because unprintable characters are replaced in what is written
        values, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=False, width=110
    )
    return text.splitlines()


def _unsupported(problem: str) -> SpecError:
    return SpecError(problem, _SUPPORTED, code="init.from")
