"""A kind of source: a linear layer from the arrays in an ``.npz`` file.

This module has the options only, so that a spec loads without importing torch; the loader is in ``source_loader``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from repogen.spec.sources import SourceOptions
from repogen.triton_config.sections.base import must_be

Scale = Annotated[Annotated[float, Field(strict=True, gt=0)], must_be("a number > 0")]


class MatrixSource(SourceOptions):
    """The options of ``kind: matrix``."""

    kind: Literal["matrix"]
    path: str = Field(description=".npz with the arrays weight [outputs, inputs] and, optionally, bias [outputs]")
    activation: Literal["none", "relu"] = "none"
    scale: Scale = Field(default=1.0, description="Factor of the weight")

    files: ClassVar[tuple[str, ...]] = ("path",)
    loader: ClassVar[str] = "repogen_example_plugin.source_loader:load_matrix"
