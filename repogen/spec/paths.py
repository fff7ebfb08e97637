"""Rules about what a spec points to on disk: factories, weights, examples, templates, the repository."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from repogen.artifacts.file_names import RESERVED_FILES
from repogen.spec.problems import printable
from repogen.spec.sources import OnnxSource, PythonSource, TorchSource
from repogen.spec.structure import Finding, PartialModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.spec.models import ExportSpec
    from repogen.spec.sources import SourceSpec
    from repogen.triton_config.sections.base import KeyPath
    from repogen.triton_config.sections.model import TritonSpec

Findings: TypeAlias = "Iterator[Finding]"

WEIGHTS_SUFFIXES = (".safetensors", ".pt", ".pth")
DATA_SUFFIXES = (".npz", ".safetensors")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_FILE_FORM = re.compile(rf"(?P<file>.+\.py):(?P<attribute>{_DOTTED})")
_MODULE_FORM = re.compile(rf"{_DOTTED}:{_DOTTED}")


def check_model_paths(model: PartialModel, root: Path) -> Findings:
    """Yield what is wrong with the files that a model names; paths start below its name.

    Args:
        model: The model.
        root: Directory of the spec, where relative paths start.
    """
    if "source" not in model.broken:
        yield from _source(model.spec.source, root)
    if "examples" not in model.broken and model.spec.examples is not None:
        yield from _examples(model.spec.examples, root)
    if "export" not in model.broken:
        yield from _export(model.spec.export, root)
    if "triton" not in model.broken:
        yield from _named_by_config(model.spec.triton, root)
    evaluation = None if "promotion" in model.broken else model.spec.promotion.gates.evaluation
    if evaluation is not None:
        yield from check_evaluation(evaluation.callable, root, ("promotion", "gates", "evaluation", "callable"))


def check_evaluation(reference: str, root: Path, path: tuple[str, ...]) -> Findings:
    """Yield why an evaluation gate's callable can't be used; its data may be missing where a model is built."""
    yield from _callable(path, reference, root, "gates.py:accuracy")


def check_templates(templates: str | None, root: Path) -> Findings:
    """Yield why the directory of template overrides can't be used."""
    if templates is not None and not _is(root, templates, "dir"):
        yield Finding(("templates",), f'there is no directory "{printable(templates)}"', _START)


def check_repository(repository: str, templates: str | None, root: Path) -> Findings:
    """Yield why the output can't be where it is asked for: Triton takes every directory in a repository for a model."""
    if "\0" in repository or not repository:
        yield Finding(("repository",), "must be the path of a directory")
        return
    output, path = (root / repository).resolve(), ("repository",)
    if output.exists() and not output.is_dir():
        yield Finding(path, f'"{printable(repository)}" is a file, not a directory')
    if root.resolve().is_relative_to(output):
        what = "holds the spec, and Triton would take the directories beside the spec for models"
        yield Finding(path, what, "give the repository a directory of its own: model_repository")
    if templates and "\0" not in templates:
        overrides = (root / templates).resolve()
        if output.is_relative_to(overrides) or overrides.is_relative_to(output):
            yield Finding(path, "and templates lie in one another", "give each a directory of its own")


_START = "paths are relative to the spec"


def _callable(path: tuple[str, ...], reference: str, root: Path, example: str) -> Findings:
    named = _FILE_FORM.fullmatch(reference)
    if named is None and (".py:" in reference or not _MODULE_FORM.fullmatch(reference)):
        hint = f'for example "{example}", or "package.module:{example.partition(":")[2]}"'
        yield Finding(path, f'"{printable(reference)}" is neither file.py:callable nor package.module:callable', hint)
    elif named is not None and not _is(root, named["file"], "file"):
        yield Finding(path, f'there is no file "{printable(named["file"])}"', _START)


def _named_by_config(triton: TritonSpec, root: Path) -> Findings:
    for path, file in triton.files.items():
        if not _is(root, file, "file"):
            yield Finding(("triton", *path), f'RG405: there is no file "{printable(file)}"', _START)


def _source(source: SourceSpec, root: Path) -> Findings:
    if isinstance(source, TorchSource):
        yield from _callable(("source", "factory"), source.factory, root, "models.py:build")
        yield from _weights(source.weights, root)
    for key in () if isinstance(source, TorchSource) else source.files:
        file = getattr(source, key)
        if file is not None and not _is(root, file, "file"):
            yield Finding(("source", key), f'there is no file "{printable(file)}"', _START)
    if isinstance(source, PythonSource):
        yield from _beside(source.data, root)
    if isinstance(source, OnnxSource) and source.reference is not None:
        path = ("source", "reference")
        if source.reference.endswith(".npz"):
            yield from _data_file(path, source.reference, root)
        else:
            yield from _callable(path, source.reference, root, "models.py:build")


def _beside(data: tuple[str, ...], root: Path) -> Findings:
    """Files that are served beside model.py lie in one directory: each needs a name of its own, that is not taken."""
    names: set[str] = set()
    for position, file in enumerate(data):
        path, name = ("source", "data", position), file.rpartition("/")[2]
        if not _is(root, file, "file"):
            yield Finding(path, f'there is no file "{printable(file)}"', _START)
        elif name in names or name in RESERVED_FILES:
            why = "another one has that name" if name in names else "repogen's own file has that name"
            yield Finding(path, f'"{printable(name)}" can\'t lie beside model.py: {why}', "rename it")
        names.add(name)


def _export(export: ExportSpec, root: Path) -> Findings:
    for position, entry in enumerate(export.allow_tracer_warnings):
        if not re.fullmatch(r".+\.py:[1-9][0-9]*", entry):
            yield Finding(("export", "allow_tracer_warnings", position), "must be file.py:line")
    for key, example in (("custom_translations", "ops.py:table"), ("custom_symbolics", "ops.py:symbolics")):
        reference = getattr(export, key)
        if reference is not None:
            yield from _callable(("export", key), reference, root, example)


def _weights(weights: str | None, root: Path) -> Findings:
    if weights is None:
        return
    path = ("source", "weights")
    if not weights.endswith(WEIGHTS_SUFFIXES):
        hint = f"known: {', '.join(WEIGHTS_SUFFIXES)}; safetensors is the one to prefer"
        yield Finding(path, f'can\'t read weights from "{printable(weights)}"', hint)
    elif not _is(root, weights, "file"):
        yield Finding(path, f'there is no file "{printable(weights)}"', _START)


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
    elif not _is(root, file, "file"):
        yield Finding(path, f'there is no file "{printable(file)}"', _START)


def _is(root: Path, relative: str, kind: str) -> bool:
    try:
        found = root / relative
        return found.is_dir() if kind == "dir" else found.is_file()
    except (OSError, ValueError):
        # A name with a NUL or of 10,000 letters: no such file can be.
        return False
