"""``kind: ensemble``: models of the spec, connected; their originals composed are the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from repogen.artifacts.source import DimRange, PassThroughSource, SourceModel
from repogen.artifacts.steps import EnsembleArtifact, EnsembleStep
from repogen.artifacts.tensors import Signature
from repogen.errors import SourceError
from repogen.source.common.inputs import dim_ranges, examples_for
from repogen.source.ensemble.steps import (
    ComposedModel,
    complete_steps,
    ensemble_tensors,
    open_published,
    sort_steps,
    wire_model,
)
from repogen.spec.sources import EnsembleSource, MlflowSource
from repogen.triton_config.text.dims import wire_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.source import Examples
    from repogen.artifacts.tensors import Array
    from repogen.source.interface import BuiltStep, SourceRequest

_PRECISIONS = ("", "float16", "bfloat16", "qint8")

Originals: TypeAlias = "Mapping[str, SourceModel]"
"""The source models of those steps that are built from their original, by model name."""


@dataclass(frozen=True)
class _ExampleOrigin:
    """The input of a step from which an ensemble's input gets its examples."""

    step: SourceModel
    input: str
    batched: bool


@dataclass(frozen=True)
class StepExamples:
    """Example inputs of an ensemble, taken from the steps that read them.

    Attributes:
        origins: Where the examples of each input come from.
    """

    origins: Mapping[str, _ExampleOrigin]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array per input, in the shapes in which Triton passes them."""
        examples = {}
        for name, origin in self.origins.items():
            arrays = origin.step.examples({**origin.step.example_sizes, **sizes}, seed)
            examples[name] = wire_array(arrays[origin.input], batched=origin.batched)
        return examples


def load_ensemble(request: SourceRequest[EnsembleSource]) -> SourceModel:
    """Compose the steps, both their originals and their published versions.

    Args:
        request: The ensemble; ``steps`` has every model that it names, and the steps of those models.

    Raises:
        SourceError: The tensors of the steps do not match, or an original cannot be loaded.
    """
    model, built = request.model, request.steps
    steps = sort_steps(complete_steps(request.options, model.output_names, built))
    signature = Signature(*ensemble_tensors(steps, model.output_names, built))
    outputs = tuple(spec.name for spec in signature.outputs)
    # A pinned version may differ from the spec, and MLflow downloads the files of one model only.
    originals = {
        step.model: request.load(built[step.model].model)
        for step in steps
        if step.version is None and not isinstance(built[step.model].model.source, MlflowSource)
    }
    dims = _dims(steps, signature, originals, built, dim_ranges(model.dims))
    published = {step.model: wire_model(open_published(step.model, built), built[step.model]) for step in steps}
    references = {
        name: wire_model(original.reference, built[name])
        for name, original in originals.items()
        if not _lost_parity(built[name])
    }
    examples: Examples = (
        _examples(steps, signature, originals, built)
        if model.examples is None
        else examples_for(model, signature.inputs, request.root)
    )
    return SourceModel(
        origin=PassThroughSource(
            artifact=EnsembleArtifact(steps, signature),
            published=ComposedModel(steps, published, outputs),
            original="composition of the original steps",
            served="the composition of the published steps",
        ),
        signature=signature,
        dims=dims,
        examples=examples,
        reference=ComposedModel(steps, {**published, **references}, outputs),
        notes=tuple(_notes(steps, originals, built)),
        files=tuple(dict.fromkeys(file for original in originals.values() for file in original.files)),
        precision=max(_precisions(steps, originals, built), key=_PRECISIONS.index),
        labels=_labels(steps, originals, outputs),
        noise=_noise(steps, built),
    )


def _lost_parity(step: BuiltStep) -> bool:
    """Return whether the outputs of a step may differ from its original's: its quality was measured instead."""
    return step.lossy is not None and not step.lossy.has_parity


def _noise(steps: tuple[EnsembleStep, ...], built: Mapping[str, BuiltStep]) -> dict[str, float]:
    """Return by how much a tensor of a lossy step may change with the other rows, as in the build of the step."""
    return {
        tensor: 2 * step.max_abs_diff
        for each in steps
        if _lost_parity(step := built[each.model]) and math.isfinite(step.max_abs_diff)
        for tensor in each.outputs.values()
    }


def _precisions(steps: tuple[EnsembleStep, ...], originals: Originals, built: Mapping[str, BuiltStep]) -> Iterator[str]:
    """Yield the precisions in which the originals and the published steps compute; empty for none."""
    yield ""
    yield from (original.precision for original in originals.values())
    yield from (lossy.precision for step in steps if (lossy := built[step.model].lossy) is not None)


def _notes(steps: tuple[EnsembleStep, ...], originals: Originals, built: Mapping[str, BuiltStep]) -> Iterator[str]:
    for step in steps:
        lossy = built[step.model].lossy
        if step.model not in originals:
            why = f"version {step.version} is pinned" if step.version else "its original is in MLflow"
            yield f"step {step.model} is not compared with its original: {why}"
        elif lossy is not None and not lossy.has_parity:
            yield f"step {step.model} is not compared with its original: it is {lossy}"


def _dims(
    steps: tuple[EnsembleStep, ...],
    signature: Signature,
    originals: Originals,
    built: Mapping[str, BuiltStep],
    declared: Mapping[str, DimRange],
) -> dict[str, DimRange]:
    """Return the dims of the inputs: bounds that every step with a dim of that name accepts."""
    used_dims = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    if unknown_dims := sorted(declared.keys() - used_dims):
        raise SourceError(
            f"no input of the ensemble has the dim {unknown_dims[0]!r}",
            f"it has {', '.join(sorted(used_dims)) or 'none'}",
            code="source.dim-unused",
        )
    ranges = dict(declared)
    step_dims = [(name, dim) for original in originals.values() for name, dim in original.dims.items()]
    for name, dim in step_dims:
        if name in used_dims:
            ranges[name] = _intersect(name, ranges.get(name, dim), dim, declared=name in declared)
    if missing_dims := sorted(used_dims - ranges.keys()):
        raise SourceError(
            f"the bounds of dim {missing_dims[0]!r} are unknown: no step with this dim is built from its original",
            f"declare it: dims: {{{missing_dims[0]}: {{max: 32}}}}",
            code="source.ensemble",
        )
    batch_sizes = [size for step in steps if (size := built[step.model].max_batch_size)]
    batch = signature.batch_dim
    if batch and batch_sizes:
        dim = ranges[batch]
        upper = max(min(dim.max, *batch_sizes), 1)
        ranges[batch] = DimRange(min(dim.min, upper), upper, min(dim.example, upper))
    return ranges


def _intersect(name: str, bounds: DimRange, dim: DimRange, *, declared: bool) -> DimRange:
    """Return the sizes that are in both ranges; a declared range must not become narrower."""
    low, high = max(bounds.min, dim.min), min(bounds.max, dim.max)
    if declared and (low, high) != (bounds.min, bounds.max):
        raise SourceError(
            f"dims.{name} is {bounds.min} to {bounds.max}, but a step accepts {dim.min} to {dim.max}",
            "narrow it, or widen the dim of the step",
            code="source.ensemble",
        )
    return DimRange(low, high, min(max(bounds.example, low), high))


def _examples(
    steps: tuple[EnsembleStep, ...], signature: Signature, originals: Originals, built: Mapping[str, BuiltStep]
) -> StepExamples:
    """Return examples from the steps that read the inputs.

    Raises:
        SourceError: No original of a step has examples for an input.
    """
    origins: dict[str, _ExampleOrigin] = {}
    for step in steps:
        for name, tensor in step.inputs.items() if step.model in originals else ():
            batched = built[step.model].max_batch_size > 0
            origins.setdefault(tensor, _ExampleOrigin(originals[step.model], name, batched))
    names = [spec.name for spec in signature.inputs]
    if missing_names := [name for name in names if name not in origins]:
        raise SourceError(
            f"there are no examples for input {missing_names[0]!r}",
            'add examples to the ensemble: examples: "examples.py:texts"',
            code="source.ensemble",
        )
    return StepExamples({name: origins[name] for name in names})


def _labels(
    steps: tuple[EnsembleStep, ...], originals: Originals, outputs: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    return {
        tensor: originals[step.model].labels[name]
        for step in steps
        if step.model in originals
        for name, tensor in step.outputs.items()
        if tensor in outputs and name in originals[step.model].labels
    }
