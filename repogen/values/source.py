"""A model as the exporters and the parity check see it, wherever it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from repogen.values.tensors import Array, Arrays, Signature


@dataclass(frozen=True)
class DimRange:
    """Bounds of a symbolic dim, inclusive, and its size at export.

    Attributes:
        min: Smallest size.
        max: Largest size.
        example: Size of the example inputs, within the bounds and never 1 (exporters fix a size of 1).
    """

    min: int
    max: int
    example: int

    @property
    def other(self) -> int:
        """A size next to the example's, within the bounds where they leave a choice."""
        return self.example + 1 if self.example < self.max else self.example - 1


class Examples(Protocol):
    """Makes example inputs of any declared size."""

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array for each input; ``sizes`` gives every symbolic dim. The same arguments, the same arrays."""


class Reference(Protocol):
    """The model that parity is measured against."""

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs by name, in the order of the signature.

        Raises:
            SourceError: The model itself refused these inputs.
        """


@dataclass(frozen=True)
class SourceModel:
    """A module with flat named tensors in and out.

    Attributes:
        module: Takes the inputs positionally in the order of the signature, returns a tuple of tensors.
        signature: Inputs with symbolic dims by name; outputs with the dims seen at the example size.
        dims: Symbolic dims by name.
        examples: Maker of example inputs.
        reference: Runs ``module`` in PyTorch, in evaluation mode, without gradients.
        notes: What was mended on the way, for people.
    """

    module: torch.nn.Module
    signature: Signature
    dims: dict[str, DimRange]
    examples: Examples
    reference: Reference
    notes: tuple[str, ...]

    @property
    def example_sizes(self) -> dict[str, int]:
        """Every symbolic dim at its example size."""
        return {name: dim.example for name, dim in self.dims.items()}
