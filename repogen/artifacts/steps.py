"""Artifacts without a graph: code for Triton's Python backend, and ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations

from repogen.artifacts.tensors import Signature  # noqa: TC001 - the same

PINNED = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[A-Za-z0-9._,-]{1,127}\])?==[A-Za-z0-9.!+_-]{1,64}$"
"""Pattern of a requirement ``name==version``: no pip options, URLs or ranges."""


@dataclass(frozen=True)
class EnsembleStep:
    """One step of an ensemble.

    Attributes:
        model: Name of the model in the repository.
        inputs: Model input -> ensemble tensor.
        outputs: Model output -> ensemble tensor.
        version: The pinned version; None for the newest.
    """

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    version: int | None = None


@dataclass(frozen=True)
class PythonArtifact:
    """Python code on disk that was run successfully.

    Attributes:
        path: The file published as ``model.py``.
        signature: Inputs and outputs declared in the spec.
        requirements: Packages that it imports, each ``name==version``.
        packed: Directory with ``model.py`` and ``packages``, to publish with the code; None if nothing is packed.
    """

    path: Path
    signature: Signature
    requirements: tuple[str, ...] = ()
    packed: Path | None = None

    exporter: str = "python"
    opset: int = 0
    ir_version: int = 0
    nodes: int = 0


@dataclass(frozen=True)
class EnsembleArtifact:
    """An ensemble that was run successfully.

    Attributes:
        steps: The steps, in order, with every tensor mapped.
        signature: Inputs and outputs of the ensemble.
    """

    steps: tuple[EnsembleStep, ...]
    signature: Signature

    exporter: str = "ensemble"
    opset: int = 0
    ir_version: int = 0
    nodes: int = 0
