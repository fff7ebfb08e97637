"""Rules for paths in a spec: factories, weights, examples, templates, the repository."""

from __future__ import annotations

import os
import re
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from repogen.artifacts.file_names import RESERVED_FILES
from repogen.errors import SpecError
from repogen.files import is_directory, is_file, is_inside, is_private_hard_link
from repogen.files.paths import real_path
from repogen.files.url import RepositoryUrl, location
from repogen.spec.problems import closest, printable
from repogen.spec.python_names import defined_names
from repogen.spec.sources import HuggingFaceSource, OnnxSource, PythonSource, TorchSource, is_hub_id
from repogen.spec.structure import Finding, PartialModel
from repogen.triton_config.render.template_files import MAX_FILES, files_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.spec.models import ExportSpec, ModelSpec, QualitySpec
    from repogen.spec.sources import SourceSpec
    from repogen.triton_config.sections.base import KeyPath
    from repogen.triton_config.sections.model import TritonSpec

Findings: TypeAlias = "Iterator[Finding]"

DATA_SUFFIXES = (".npz", ".safetensors")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_FILE_FORM = re.compile(rf"(?P<file>.+\.py):(?P<attribute>{_DOTTED})")
_MODULE_FORM = re.compile(rf"{_DOTTED}:{_DOTTED}")


def check_model_paths(model: PartialModel, root: Path) -> Findings:
    """Yield the problems of the files that a model names; key paths start below its name.

    Args:
        model: The model.
        root: Directory of the spec, which paths are relative to.
    """
    if "source" not in model.broken:
        yield from _source(model.spec.source, root)
    if "examples" not in model.broken and model.spec.examples is not None:
        yield from _examples(model.spec.examples, root)
    if "export" not in model.broken:
        yield from _export(model.spec.export, root)
    if "optimize" not in model.broken:
        yield from _pass_files(model.spec, root)
    if "quality" not in model.broken and model.spec.quality is not None:
        yield from _quality(model.spec.quality, root)
    if "triton" not in model.broken:
        yield from _config_files(model.spec.triton, root)
    evaluation = None if "promotion" in model.broken else model.spec.promotion.gates.evaluation
    if evaluation is not None:
        yield from check_evaluation(evaluation.callable, root, ("promotion", "gates", "evaluation", "callable"))


def check_evaluation(reference: str, root: Path, path: tuple[str, ...]) -> Findings:
    """Yield the problems of an evaluation gate's callable; its data need not exist where a model is built."""
    yield from _callable(path, reference, root, "gates.py:accuracy")


def check_templates(templates: str | None, root: Path) -> Findings:
    """Yield the problems of the directory with template overrides."""
    if templates is None:
        return
    name = printable(templates)
    if "\0" in templates or not is_directory(root / templates):
        yield Finding(("templates",), f'directory "{name}" does not exist', _RELATIVE_HINT)
    elif sum(1 for _ in islice(files_below(root / templates), MAX_FILES + 1)) > MAX_FILES:
        what = f'directory "{name}" has more than {MAX_FILES} files'
        yield Finding(("templates",), what, "use a directory that contains only templates")


def check_repository(repository: str, templates: str | None, root: Path) -> Findings:
    """Yield the problems of the output directory, in which Triton treats every directory as a model."""
    if "\0" in repository or not repository:
        yield Finding(("repository",), "must be the path of a directory, or a URL")
        return
    try:
        place = location(repository)
    except SpecError as error:
        yield Finding(("repository",), error.message, error.hint)
        return
    if not isinstance(place, RepositoryUrl):
        yield from _check_directory(repository, templates, root)


def _check_directory(repository: str, templates: str | None, root: Path) -> Findings:
    output, path = _resolved(root / repository), ("repository",)
    try:
        if not stat.S_ISDIR(output.stat().st_mode):
            yield Finding(path, f'"{printable(repository)}" is a file, not a directory')
    except (FileNotFoundError, NotADirectoryError):
        pass  # the build creates it, or reports which part of the path is a file
    except OSError as error:
        yield Finding(path, f'"{printable(repository)}" cannot be used: {error.strerror}', "use another directory")
    if _resolved(root).is_relative_to(output):
        what = "contains the spec, and Triton would treat the directories next to the spec as models"
        yield Finding(path, what, "use a separate directory: model_repository")
    if templates and "\0" not in templates:
        overrides = _resolved(root / templates)
        if output.is_relative_to(overrides) or overrides.is_relative_to(output):
            yield Finding(path, "and templates contain one another", "use separate directories")


_RELATIVE_HINT = "paths are relative to the spec"


def _callable(path: KeyPath, reference: str, root: Path, example: str) -> Findings:
    match = _FILE_FORM.fullmatch(reference)
    if match is None and (".py:" in reference or not _MODULE_FORM.fullmatch(reference)):
        hint = f'for example "{example}", or "package.module:{example.partition(":")[2]}"'
        yield Finding(path, f'"{printable(reference)}" is neither file.py:callable nor package.module:callable', hint)
    elif match is not None:
        findings = list(_code_file(path, match["file"], root))
        yield from findings or _attribute(path, root / match["file"], match["attribute"].partition(".")[0])


def _attribute(path: KeyPath, file: Path, name: str) -> Findings:
    names = defined_names(file)
    if names is not None and name not in names:
        similar = closest(name, sorted(names))
        hint = f'did you mean "{similar}"?' if similar else "define it there, or correct the name"
        yield Finding(path, f'{printable(file.name)} does not define "{printable(name)}"', hint)


def _config_files(triton: TritonSpec, root: Path) -> Findings:
    for path, file in triton.files.items():
        for finding in _published_file(("triton", *path), file, root):
            yield finding._replace(what=f"RG405: {finding.what}")


def _source(source: SourceSpec, root: Path) -> Findings:
    if isinstance(source, TorchSource):
        yield from _callable(("source", "factory"), source.factory, root, "models.py:build")
        yield from _weights(source.weights, root)
    for key in () if isinstance(source, TorchSource) else source.files:
        file = getattr(source, key)
        if file is not None:
            yield from _read_file(("source", key), file, root)
    if isinstance(source, HuggingFaceSource):
        yield from _checkpoint(source, root)
    if isinstance(source, PythonSource):
        yield from _python_data(source.data, root)
    if isinstance(source, OnnxSource) and source.reference is not None:
        path = ("source", "reference")
        if source.reference.endswith(".npz"):
            yield from _data_file(path, source.reference, root)
        else:
            yield from _callable(path, source.reference, root, "models.py:build")


def _checkpoint(source: HuggingFaceSource, root: Path) -> Findings:
    model = printable(source.model)
    is_local = is_directory(root / source.model)
    if not is_local and not is_hub_id(source.model):
        yield Finding(("source", "model"), f'directory "{model}" does not exist', _RELATIVE_HINT)
    elif is_local and source.revision is not None:
        what = f'is a commit on the Hugging Face Hub, but "{model}" is a directory next to the spec'
        yield Finding(("source", "revision"), what, "rename or delete the directory, or remove this key")


def _python_data(data: tuple[str, ...], root: Path) -> Findings:
    """Yield the problems of files that are served next to model.py, where each needs a unique name."""
    names: set[str] = set()
    for position, file in enumerate(data):
        path, name = ("source", "data", position), file.rpartition("/")[2]
        problems = list(_published_file(path, file, root))
        yield from problems
        if not problems and (name in names or name in RESERVED_FILES):
            owner = "another file" if name in names else "a file of repogen"
            yield Finding(
                path, f'"{printable(name)}" can\'t be stored next to model.py: {owner} has this name', "rename it"
            )
        names.add(name)


def _export(export: ExportSpec, root: Path) -> Findings:
    for position, entry in enumerate(export.allow_tracer_warnings):
        if not re.fullmatch(r".+\.py:[1-9][0-9]*", entry):
            yield Finding(("export", "allow_tracer_warnings", position), "must be file.py:line")
    for key, example in (("custom_translations", "ops.py:table"), ("custom_symbolics", "ops.py:symbolics")):
        reference = getattr(export, key)
        if reference is not None:
            yield from _callable(("export", key), reference, root, example)


def _pass_files(model: ModelSpec, root: Path) -> Findings:
    """Yield the problems of the files and callables in options of passes, such as calibration data."""
    for position, step in enumerate(model.passes):
        for option, file in step.files.items():
            path = ("optimize", position, "options", option)
            if ":" in file:
                yield from _callable(path, file, root, "calibration.py:batches")
            else:
                yield from _read_file(path, file, root)


def _quality(quality: QualitySpec, root: Path) -> Findings:
    yield from _callable(("quality", "callable"), quality.callable, root, "quality.py:accuracy")
    if quality.data is not None:
        yield from _read_file(("quality", "data"), quality.data, root)


def _weights(weights: str | None, root: Path) -> Findings:
    if weights is None:
        return
    path = ("source", "weights")
    yield from _read_file(path, weights, root)  # the worker identifies its format by its content


def _examples(examples: str | tuple[str, ...], root: Path) -> Findings:
    if isinstance(examples, tuple):
        for position, file in enumerate(examples):
            yield from _data_file(("examples", position), file, root)
    elif ":" in examples:
        yield from _callable(("examples",), examples, root, "models.py:examples")
    else:
        yield from _data_file(("examples",), examples, root)


def _data_file(path: KeyPath, file: str, root: Path) -> Findings:
    if not file.endswith(DATA_SUFFIXES):
        hint = 'for example "examples.npz", or "models.py:examples"'
        yield Finding(path, f'"{printable(file)}" is neither .npz nor .safetensors, nor file.py:callable', hint)
    else:
        yield from _read_file(path, file, root)


def _code_file(path: KeyPath, file: str, root: Path) -> Findings:
    """Yield the problem of a file whose code runs: it may be anywhere."""
    if "\0" in file or not is_file(root / file):
        yield Finding(path, f'file "{printable(file)}" does not exist', _RELATIVE_HINT)


def _read_file(path: KeyPath, file: str, root: Path) -> Findings:
    """Yield the problem of a file that is read, such as weights: it may be anywhere, but not a link to another place.

    Whoever wrote the spec chose the path. A symlink is content of a checkout or an archive, which is not trusted.
    """
    problems = list(_code_file(path, file, root))
    yield from problems
    within = not problems and _lexically_inside(file, root)
    if not problems and not is_inside(root / file, root if within else (root / file).parent):
        directory = "the spec's directory" if within else "its own directory"
        hint = "specify the file that it links to, or replace the link with a copy"
        yield Finding(path, f'"{printable(file)}" is a link that leads out of {directory}', hint)


def _published_file(path: KeyPath, file: str, root: Path) -> Findings:
    """Yield the problem of a file that is published unchanged: it must be in the spec's directory."""
    problems = list(_code_file(path, file, root))
    yield from problems
    if not problems and not is_inside(root / file, root):
        hint = "files that are published must be in the directory of the spec: copy it there"
        yield Finding(path, f'"{printable(file)}" leads out of the spec\'s directory', hint)
    elif not problems and is_private_hard_link(root / file):
        hint = f"replace it with a copy: cp --remove-destination, or make it readable: chmod o+r {printable(file)}"
        yield Finding(path, f'"{printable(file)}" has more than one hard link, and not every user may read it', hint)


def _lexically_inside(file: str, root: Path) -> bool:
    """Return whether a path is in a directory as it is written, whatever its links."""
    return Path(os.path.normpath(root / file)).is_relative_to(os.path.normpath(root))


def _resolved(path: Path) -> Path:
    """Return a path without symlinks; one in a loop stays as it is."""
    return real_path(path)
