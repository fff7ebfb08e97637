"""A model of the spec that is built already, as an ensemble's step sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - pydantic decodes by these annotations

from repogen.artifacts.steps import EnsembleStep  # noqa: TC001 - the same
from repogen.artifacts.tensors import Signature  # noqa: TC001 - the same
from repogen.spec.models import ModelSpec  # noqa: TC001 - the same

PUBLISHED = "repogen_published_"
"""Begins the module names of code that is imported from a version: it is no code of the user's that a build reads."""


@dataclass(frozen=True)
class BuiltStep:
    """A verified version and what it was made of.

    Attributes:
        model: Its spec entry.
        version_dir: Its version directory.
        signature: Its inputs and outputs, full shapes.
        max_batch_size: 0 when it does not batch.
        steps: Its own, of an ensemble; empty otherwise.
    """

    model: ModelSpec
    version_dir: Path
    signature: Signature
    max_batch_size: int
    steps: tuple[EnsembleStep, ...] = ()
