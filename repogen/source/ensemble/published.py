"""A version as it is published, run here: its graph in ONNX Runtime, its code, or its steps composed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from repogen.artifacts.file_names import MODEL_FILE, PYTHON_FILE
from repogen.source.common.built_step import PUBLISHED
from repogen.source.ensemble.wire import wired
from repogen.source.onnx.read import read_onnx
from repogen.source.onnx.reference import file_reference
from repogen.source.python.model import PythonCode, model_config, open_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.source import Reference
    from repogen.artifacts.steps import EnsembleStep
    from repogen.source.common.built_step import BuiltStep


class Compose(Protocol):
    """Makes one model of several."""

    def __call__(
        self, steps: tuple[EnsembleStep, ...], models: Mapping[str, Reference], outputs: tuple[str, ...]
    ) -> Reference:
        """Return it."""


def open_published(name: str, step: BuiltStep, built: Mapping[str, BuiltStep], compose: Compose) -> Reference:
    """Return what runs a published version.

    Args:
        name: The model.
        step: The version.
        built: All that an ensemble may lead to, by name.
        compose: Makes an ensemble's steps one.

    Raises:
        SourceError: It can't be run here.
    """
    directory = step.version_dir
    inputs = {spec.name: spec.name for spec in step.signature.inputs}
    outputs = {spec.name: spec.name for spec in step.signature.outputs}
    if (directory / MODEL_FILE).is_file():
        path = directory / MODEL_FILE
        return file_reference(read_onnx(path), path, inputs, outputs)
    if (directory / PYTHON_FILE).is_file():
        config = model_config(name, step.signature, step.max_batch_size, {})
        place = f"{name}/{directory.name}/{PYTHON_FILE}"
        code = PythonCode(directory.parent, directory.name, step.signature, config, place, directory.parent)
        return open_python(code, prefix=PUBLISHED)
    models = {
        inner.model: wired(open_published(inner.model, built[inner.model], built, compose), built[inner.model])
        for inner in step.steps
    }
    return compose(step.steps, models, tuple(outputs))
