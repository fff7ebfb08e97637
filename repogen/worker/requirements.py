"""The packages of the optional extras that only the worker imports."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from repogen.distribution import install_command
from repogen.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.spec.models import ModelSpec

REQUIREMENTS = ("torch", "onnxruntime", "onnxscript", "onnx_ir", "onnxsim", "safetensors")
"""Import names of the extra ``build``."""
_HUGGINGFACE = ("huggingface_hub", "transformers")


def require_installed(models: Iterable[ModelSpec]) -> None:
    """Check that the packages for building ``models`` are installed, without importing them.

    Raises:
        MissingExtraError: At least one is missing; the message names all of them.
    """
    models = list(models)
    passes = {step.name for model in models for step in model.passes}
    missing_packages = [
        name for name in REQUIREMENTS if (name != "onnxsim" or name in passes) and find_spec(name) is None
    ]
    if any(model.source.kind == "huggingface" for model in models):
        missing_packages += [name for name in _HUGGINGFACE if find_spec(name) is None]
    if missing_packages:
        raise missing_requirements(missing_packages)


def missing_requirements(names: Iterable[str]) -> MissingExtraError:
    """Return the error for packages that are not installed."""
    names = list(names)
    extras = ("build", "huggingface") if set(names) & set(_HUGGINGFACE) else ("build",)
    return MissingExtraError(
        f"building needs packages that are not installed: {', '.join(names)}",
        f"{install_command(*extras)} (see README for the CPU build of torch)",
    )
