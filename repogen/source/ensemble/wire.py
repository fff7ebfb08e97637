"""Models as an ensemble sees them: by the shapes that their tensors have on the wire, not inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.tensors import TensorSpec
from repogen.triton_config.text.dims import wire_array

if TYPE_CHECKING:
    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Array, Arrays, Signature
    from repogen.source.common.built_step import BuiltStep


@dataclass(frozen=True)
class Wired:
    """A model that takes and answers what Triton hands around.

    Attributes:
        model: It, in its own shapes.
        signature: Its own.
        batched: Whether its ``max_batch_size`` is above 0: a ``[batch]`` tensor then travels as ``[batch, 1]``.
    """

    model: Reference
    signature: Signature
    batched: bool

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs as they travel.

        Raises:
            SourceError: The model refused the inputs.
        """
        ranks = {spec.name: len(spec.shape) for spec in self.signature.inputs}
        own = {name: array.reshape(array.shape[: ranks[name]]) for name, array in inputs.items()}
        return {name: wire_array(array, batched=self.batched) for name, array in self.model(own).items()}


def wired(model: Reference, step: BuiltStep) -> Reference:
    """Return a step's model as the ensemble sees it."""
    return Wired(model, step.signature, step.max_batch_size > 0)


def wire_specs(specs: tuple[TensorSpec, ...], step: BuiltStep) -> dict[str, TensorSpec]:
    """Return tensors of a step as they travel, by name."""
    batched = step.max_batch_size > 0
    found = {}
    for spec in specs:
        short = not spec.shape or (batched and len(spec.shape) == 1)
        found[spec.name] = TensorSpec(spec.name, spec.dtype, (*spec.shape, 1) if short else spec.shape)
    return found
