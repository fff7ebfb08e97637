"""The distributions of the optional extra ``build``, which the worker imports and nothing else does."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from repogen.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.spec.models import ModelSpec

EXTRAS = ("torch", "onnxruntime", "onnxscript", "onnx_ir", "onnxsim", "safetensors")
"""Import names."""


def require_extras(models: Iterable[ModelSpec]) -> None:
    """Say which packages are missing before any time is spent; imports none of them.

    Raises:
        MissingExtraError: At least one is; the message names all.
    """
    passes = {name for model in models for name in model.optimize}
    missing = [name for name in EXTRAS if (name != "onnxsim" or name in passes) and find_spec(name) is None]
    if missing:
        raise missing_extra(missing)


def missing_extra(names: Iterable[str]) -> MissingExtraError:
    """Return the error for packages that are not installed."""
    return MissingExtraError(
        f"building needs packages that are not installed: {', '.join(names)}",
        "pip install 'triton-repogen[build]' (see README for the CPU build of torch)",
    )
