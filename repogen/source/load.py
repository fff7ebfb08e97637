"""Spec entry -> SourceModel, by the kind of its source."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from repogen.source.torch.operators import load_operators
from repogen.spec.sources import EnsembleSource, MlflowSource, PythonSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.source.common.built_step import BuiltStep
    from repogen.spec.models import ModelSpec


_LOADERS = {
    "torch": ("torch.loader", "load_torch"),
    "torchscript": ("torch.script", "load_script"),
    "torch_export": ("torch.exported_program", "load_program"),
    "onnx": ("onnx.loader", "load_onnx"),
    "huggingface": ("huggingface.loader", "load_huggingface"),
    "mlflow": ("mlflow.loader", "load_mlflow"),
    "python": ("python.loader", "load_python"),
    "ensemble": ("ensemble.loader", "load_ensemble"),
}


def load_source(
    model: ModelSpec,
    root: Path,
    fetched: Path | None = None,
    steps: Mapping[str, BuiltStep] = MappingProxyType({}),
    work_dir: Path | None = None,
) -> SourceModel:
    """Make the model of a spec entry and find its signature by running it.

    Args:
        model: The spec entry.
        root: Directory of the spec; its relative paths start there.
        fetched: Where the files lie that were downloaded for it, if any were.
        steps: What an ensemble is made of, by name.
        work_dir: Where files may be laid out; among the temporary ones when None.

    Raises:
        SourceError: The source, the inputs or the outputs are not usable; it says which and why.
    """
    # Nested tensors of the fast path disagree with any export at padding (triton-facts: 2.3 seen).
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(model.parity.seed)
    module, name = _LOADERS[model.source.kind]
    load = getattr(importlib.import_module(f"repogen.source.{module}"), name)  # each brings what only it needs
    made: SourceModel = load(model.source, model, root, *_more(model, root, fetched, steps, work_dir))
    return replace(made, operators=load_operators(model.export, root))


def _more(
    model: ModelSpec, root: Path, fetched: Path | None, steps: Mapping[str, BuiltStep], work_dir: Path | None
) -> tuple[object, ...]:
    """Return what the loader of a kind takes beyond the spec."""
    match model.source:
        case MlflowSource():
            return (fetched or root,)
        case PythonSource():
            return (work_dir,)
        case EnsembleSource():
            return steps, partial(load_source, root=root, steps=steps, work_dir=work_dir)
    return ()
