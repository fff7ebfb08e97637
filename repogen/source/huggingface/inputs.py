"""Inputs of a task, assembled from those of its modalities, with the sizes that the configuration allows."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from repogen.artifacts.tensors import TensorSpec
from repogen.errors import SourceError
from repogen.source.common.call import Call, Placeholder
from repogen.source.common.inputs import DEFAULT_BATCH, Inputs, dim_ranges
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from repogen.artifacts.source import DimRange
    from repogen.artifacts.tensors import Array
    from repogen.source.huggingface.tasks import Model

TEXT_BATCH, IMAGE_BATCH = "text_batch", "image_batch"
"""Batch dims of a contrastive model, which scores every image against every text."""

_BATCH = DimSpec(min=DEFAULT_BATCH.min, max=DEFAULT_BATCH.max, example=DEFAULT_BATCH.example)
_BATCHES = {IMAGE_BATCH: DimSpec(min=DEFAULT_BATCH.min, max=DEFAULT_BATCH.max, example=DEFAULT_BATCH.example + 1)}

Draw: TypeAlias = "Callable[[Mapping[str, int], int], dict[str, Array]]"
"""Returns one random array per input, from the size of every symbolic dim and a seed."""


@dataclass(frozen=True)
class ModalityInputs:
    """The inputs of one modality: text, image or audio.

    Attributes:
        specs: The inputs; their symbolic dims are a batch dim and those in ``bounds``.
        draw: Draws example inputs.
        bounds: Symbolic dims other than the batch.
        notes: Remarks for the report.
    """

    specs: tuple[TensorSpec, ...]
    draw: Draw
    bounds: Mapping[str, DimSpec] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskExamples:
    """Example inputs of all modalities of a task.

    Attributes:
        modalities: The modalities.
        fixed: Sizes of the dims that the spec fixes.
    """

    modalities: tuple[ModalityInputs, ...]
    fixed: Mapping[str, int]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array per input."""
        arrays: dict[str, Array] = {}
        for modality in self.modalities:
            arrays |= modality.draw({**self.fixed, **sizes}, seed)
        return arrays


def combine(modalities: tuple[ModalityInputs, ...], dims: Mapping[str, DimSpec]) -> Inputs:
    """Return the inputs of a task; dims of the spec override the bounds, and equal bounds make a dim a fixed size.

    Raises:
        SourceError: The spec has a dim that no input has.
    """
    ranges, fixed_sizes = _ranges(modalities, dims)
    specs = tuple(_with_fixed(spec, fixed_sizes) for modality in modalities for spec in modality.specs)
    call = Call((), {spec.name: Placeholder(index) for index, spec in enumerate(specs)})
    bounds = ", ".join(f"{name} {dim.min} to {dim.max}" for name, dim in ranges.items())
    summary = "; ".join(f"{spec.name} {spec.dtype} [{', '.join(map(str, spec.shape))}]" for spec in specs)
    notes = (
        f"inputs of the task: {summary}; dims: {bounds} (set dims: in the spec to change the bounds)",
        *(note for modality in modalities for note in modality.notes),
    )
    return Inputs(specs, ranges, TaskExamples(modalities, fixed_sizes), call, notes)


def _ranges(
    modalities: tuple[ModalityInputs, ...], dims: Mapping[str, DimSpec]
) -> tuple[dict[str, DimRange], dict[str, int]]:
    """Return the range of every symbolic dim, and the sizes of those that the spec fixes."""
    dim_specs: dict[str, DimSpec] = {}
    for modality in modalities:
        names = [dim for spec in modality.specs for dim in spec.shape if isinstance(dim, str)]
        dim_specs |= {name: modality.bounds.get(name, _BATCHES.get(name, _BATCH)) for name in names}
    if unknown := [name for name in dims if name not in dim_specs]:
        raise SourceError(
            f"dims: no input has {', '.join(unknown)}; the dynamic dims are {', '.join(dim_specs) or 'none'}",
            "use one of those, or declare inputs: with dims of your own",
            code="source.dim-unused",
        )
    specs = {name: dims.get(name, spec) for name, spec in dim_specs.items()}
    fixed_sizes = {name: spec.max for name, spec in specs.items() if spec.min == spec.max}
    return dim_ranges({name: spec for name, spec in specs.items() if name not in fixed_sizes}), fixed_sizes


def _with_fixed(spec: TensorSpec, fixed_sizes: Mapping[str, int]) -> TensorSpec:
    shape = tuple(fixed_sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
    return TensorSpec(spec.name, spec.dtype, shape)


def precision(module: Model) -> str:
    """Return the dtype of a model's weights, such as ``float32``."""
    return str(module.dtype).removeprefix("torch.")


def normal_noise(spec: TensorSpec, sizes: Mapping[str, int], seed: int) -> tuple[Array, np.random.Generator]:
    """Return values with mean 0 and deviation 1, as processors normalize pixels and samples; and their generator."""
    rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)
    return np.asarray(rng.standard_normal(shape), spec.dtype), rng
