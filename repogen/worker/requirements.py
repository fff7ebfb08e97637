"""The distributions of the optional extras that the worker imports, and nothing else does."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from repogen.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.spec.models import ModelSpec

EXTRAS = ("torch", "onnxruntime", "onnxscript", "onnx_ir", "onnxsim", "safetensors")
"""Import names of the extra ``build``."""
_HUGGINGFACE = ("huggingface_hub", "transformers")


def require_extras(models: Iterable[ModelSpec]) -> None:
    """Say which packages are missing before any time is spent; imports none of them.

    Raises:
        MissingExtraError: At least one is; the message names all.
    """
    chosen = list(models)
    passes = {step.name for model in chosen for step in model.optimize}
    missing = [name for name in EXTRAS if (name != "onnxsim" or name in passes) and find_spec(name) is None]
    if any(model.source.kind == "huggingface" for model in chosen):
        missing += [name for name in _HUGGINGFACE if find_spec(name) is None]
    if missing:
        raise missing_extra(missing)


def missing_extra(names: Iterable[str]) -> MissingExtraError:
    """Return the error for packages that are not installed."""
    absent = list(names)
    extras = "build,huggingface" if set(absent) & set(_HUGGINGFACE) else "build"
    return MissingExtraError(
        f"building needs packages that are not installed: {', '.join(absent)}",
        f"pip install 'triton-repogen[{extras}]' (see README for the CPU build of torch)",
    )
