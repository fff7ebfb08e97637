"""Models that are no graph: Python code that Triton's Python backend runs, and ensembles of other models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the worker's answer is decoded by these annotations

from repogen.artifacts.tensors import Signature  # noqa: TC001 - the same

PINNED = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(\[[A-Za-z0-9._,-]{1,127}\])?==[A-Za-z0-9.!+_-]{1,64}$"
"""A requirement as ``name==version``: no option of pip's, no URL, no range."""


@dataclass(frozen=True)
class EnsembleStep:
    """One model of an ensemble.

    Attributes:
        model: Its name in the repository.
        inputs: The ensemble's tensor that goes into each of its inputs, by the input's name.
        outputs: The ensemble's tensor that each of its outputs becomes, by the output's name.
        version: The version that is asked for; None for the newest.
    """

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    version: int | None = None


@dataclass(frozen=True)
class PythonArtifact:
    """Python code on disk, that was run.

    Attributes:
        path: Its ``model.py``.
        signature: Inputs and outputs as the spec declares them.
        requirements: What it imports, each ``name==version``.
    """

    path: Path
    signature: Signature
    requirements: tuple[str, ...] = ()

    exporter: str = "python"
    opset: int = 0
    ir_version: int = 0
    nodes: int = 0


@dataclass(frozen=True)
class EnsembleArtifact:
    """An ensemble, composed and run.

    Attributes:
        steps: Its models; every input and output that they have in it is named.
        signature: Inputs and outputs of the whole.
    """

    steps: tuple[EnsembleStep, ...]
    signature: Signature

    exporter: str = "ensemble"
    opset: int = 0
    ir_version: int = 0
    nodes: int = 0
