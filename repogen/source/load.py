"""Spec entry -> SourceModel, by the kind of its source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from repogen.source.operators import load_operators
from repogen.spec.sources import (
    HuggingFaceSource,
    MlflowSource,
    OnnxSource,
    TorchExportSource,
    TorchScriptSource,
    TorchSource,
)

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.spec.models import ModelSpec
    from repogen.values.source import SourceModel


def load_source(model: ModelSpec, root: Path, fetched: Path | None = None) -> SourceModel:
    """Make the model of a spec entry and find its signature by running it.

    Args:
        model: The spec entry.
        root: Directory of the spec; its relative paths start there.
        fetched: Where the files lie that were downloaded for it, if any were.

    Raises:
        SourceError: The source, the inputs or the outputs are not usable; it says which and why.
    """
    # Nested tensors of the fast path disagree with any export at padding (triton-facts: 2.3 seen).
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(model.parity.seed)
    made = _load(model, root, fetched or root)
    return replace(made, operators=load_operators(model.export, root))


def _load(model: ModelSpec, root: Path, fetched: Path) -> SourceModel:
    source = model.source
    match source:
        case TorchSource():
            from repogen.source.torch_source import load_torch  # noqa: PLC0415 - each brings what only it needs

            return load_torch(source, model, root)
        case TorchScriptSource():
            from repogen.source.script import load_script  # noqa: PLC0415 - the same

            return load_script(source, model, root)
        case TorchExportSource():
            from repogen.source.program import load_program  # noqa: PLC0415 - the same

            return load_program(source, model, root)
        case OnnxSource():
            from repogen.source.onnx_file import load_onnx  # noqa: PLC0415 - the same

            return load_onnx(source, model, root)
        case HuggingFaceSource():
            from repogen.source.huggingface import load_huggingface  # noqa: PLC0415 - the same

            return load_huggingface(source, model, root)
        case MlflowSource():
            from repogen.source.mlflow_model import load_mlflow  # noqa: PLC0415 - the same

            return load_mlflow(source, model, root, fetched)
