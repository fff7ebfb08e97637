"""Loads ``kind: matrix``: builds a torch module, and lets repogen determine its signature and verify it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np
import torch

from repogen.errors import SourceError
from repogen.source.common.inputs import find_inputs
from repogen.source.torch.eager import source_from_module
from repogen.spec.models import DimSpec, InputSpec

if TYPE_CHECKING:
    from repogen.artifacts.source import SourceModel
    from repogen.source.interface import SourceRequest

    from .source import MatrixSource


def load_matrix(request: SourceRequest[MatrixSource]) -> SourceModel:
    """Return the source model of a matrix; its input is ``x`` unless the spec declares inputs.

    Raises:
        SourceError: The file has no array ``weight``.
    """
    options, model, root = request.options, request.model, request.root
    with np.load(root / options.path) as arrays:
        if "weight" not in arrays:
            raise SourceError(f"{options.path} has no array 'weight'", code="source.matrix", where=options.path)
        weight = torch.from_numpy(arrays["weight"] * np.float32(options.scale))
        bias = torch.from_numpy(arrays["bias"]) if "bias" in arrays else None
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    module = torch.nn.Sequential(layer, torch.nn.ReLU()) if options.activation == "relu" else layer
    if not model.inputs:
        x = InputSpec(dtype="float32", shape=("batch", weight.shape[1]))
        model = model.model_copy(update={"inputs": {"x": x}, "dims": {"batch": DimSpec(max=8), **model.dims}})
    inputs = find_inputs(model, root, inspect.signature(module.forward).parameters)
    return source_from_module(module.eval(), inputs, model, root)
