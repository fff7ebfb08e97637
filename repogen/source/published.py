"""A version as it is published, run here: its graph in ONNX Runtime, its code, or its steps composed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from repogen.source.built import PUBLISHED
from repogen.source.onnx_read import read_onnx
from repogen.source.onnx_runs import file_reference
from repogen.source.python_model import described_config, open_python
from repogen.source.wired import wired
from repogen.values.layout import MODEL_FILE, PYTHON_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.source.built import BuiltStep
    from repogen.values.source import Reference
    from repogen.values.steps import EnsembleStep


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
        config = described_config(name, step.signature, step.max_batch_size, {})
        place = f"{name}/{directory.name}/{PYTHON_FILE}"
        return open_python(
            *(directory.parent, directory.name, step.signature, config, place, directory.parent), prefix=PUBLISHED
        )
    models = {
        inner.model: wired(open_published(inner.model, built[inner.model], built, compose), built[inner.model])
        for inner in step.steps
    }
    return compose(step.steps, models, tuple(outputs))
