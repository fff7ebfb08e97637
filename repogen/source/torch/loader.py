"""``kind: torch``: a callable that returns the module."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from repogen.source.common.inputs import find_inputs
from repogen.source.torch.eager import of_module
from repogen.source.torch.module import make_module, prepare
from repogen.source.torch.script import of_script
from repogen.source.torch.weights import load_weights

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import TorchSource


def load_torch(source: TorchSource, model: ModelSpec, root: Path) -> SourceModel:
    """Make the module of a factory, load its weights, and find its signature.

    Raises:
        SourceError: The factory, the weights, the inputs or the outputs are not usable; it says which and why.
    """
    made = make_module(source.factory, source.kwargs, root)
    cast = () if source.weights is None else load_weights(made, root / source.weights)
    module, done = prepare(made, source.dtype)
    if isinstance(module, torch.jit.ScriptModule):
        found = of_script(module, model, root)
    else:
        found = of_module(module, find_inputs(model, root, inspect.signature(module.forward).parameters), model, root)
    return replace(found, notes=(*cast, *done, *found.notes))
