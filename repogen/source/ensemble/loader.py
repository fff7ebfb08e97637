"""``kind: ensemble``: the steps' originals composed, and beside them the steps as they are published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.source import DimRange, PassThroughSource, SourceModel
from repogen.artifacts.steps import EnsembleArtifact, EnsembleStep
from repogen.artifacts.tensors import Signature
from repogen.errors import SourceError
from repogen.source.common.dims import dim_ranges
from repogen.source.common.inputs import examples_for
from repogen.source.ensemble.published import open_published
from repogen.source.ensemble.wire import wired
from repogen.source.ensemble.wiring import ends, in_order, mapped
from repogen.spec.sources import EnsembleSource, MlflowSource
from repogen.triton_config.text.dims import wire_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.source import Examples, Reference
    from repogen.artifacts.tensors import Array, Arrays
    from repogen.source.common.built_step import BuiltStep
    from repogen.spec.models import ModelSpec

_PRECISIONS = ("", "float16", "bfloat16")


@dataclass(frozen=True)
class Composed:
    """Models, one feeding the next.

    Attributes:
        steps: In an order in which each finds its inputs made.
        models: What runs each, by name.
        outputs: Names of the whole's.
    """

    steps: tuple[EnsembleStep, ...]
    models: Mapping[str, Reference]
    outputs: tuple[str, ...]

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs of the whole.

        Raises:
            SourceError: A step refused what it was given.
        """
        made = dict(inputs)
        for step in self.steps:
            answers = self.models[step.model]({theirs: made[ours] for theirs, ours in step.inputs.items()})
            made |= {ours: answers[theirs] for theirs, ours in step.outputs.items()}
        return {name: made[name] for name in self.outputs}


@dataclass(frozen=True)
class ForwardedExamples:
    """Example inputs of an ensemble: those of the steps that take them."""

    makers: Mapping[str, tuple[SourceModel, str, bool]]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array for each input, as it travels."""
        made = {}
        for name, (step, theirs, batched) in self.makers.items():
            arrays = step.examples({**step.example_sizes, **sizes}, seed)
            made[name] = wire_array(arrays[theirs], batched=batched)
        return made


def load_ensemble(
    source: EnsembleSource,
    model: ModelSpec,
    root: Path,
    built: Mapping[str, BuiltStep],
    load: Callable[[ModelSpec], SourceModel],
) -> SourceModel:
    """Compose the steps.

    Args:
        source: The spec's steps.
        model: The spec entry.
        root: Directory of the spec.
        built: Every model that they name, and those that these name, by name.
        load: Loads the original of a step's model.

    Raises:
        SourceError: Tensors and steps do not fit, or a step's original can't be made.
    """
    steps = in_order(mapped(source, model.output_names, built))
    inputs, outputs = ends(steps, model.output_names, built)
    newest = [step.model for step in steps if step.version is None]
    originals = {name: _original(built[name], load) for name in newest}
    published = {
        step.model: wired(open_published(step.model, built[step.model], built, compose), built[step.model])
        for step in steps
    }
    references = {
        name: wired(original.reference, built[name]) for name, original in originals.items() if original is not None
    }
    signature = Signature(tuple(inputs.values()), tuple(outputs.values()))
    dims = _dims(steps, signature, originals, built, dim_ranges(model.dims))
    names = tuple(outputs)
    own = None if model.examples is None else examples_for(model, signature.inputs, root)
    made = [original for original in originals.values() if original is not None]
    return SourceModel(
        origin=PassThroughSource(
            artifact=EnsembleArtifact(steps, signature),
            published=Composed(steps, published, names),
            original="steps' originals, composed",
            served="the published steps, composed,",
        ),
        signature=signature,
        dims=dims,
        examples=own or _examples(steps, tuple(inputs), originals, built),
        reference=Composed(steps, {**published, **references}, names),
        notes=tuple(_notes(steps, originals)),
        files=tuple(dict.fromkeys(file for original in made for file in original.files)),
        precision=max((original.precision for original in made), key=_PRECISIONS.index, default=""),
        labels=_labels(steps, originals, names),
    )


def compose(steps: tuple[EnsembleStep, ...], models: Mapping[str, Reference], outputs: tuple[str, ...]) -> Reference:
    """Return models as one."""
    return Composed(in_order(list(steps)), models, outputs)


def _original(step: BuiltStep, load: Callable[[ModelSpec], SourceModel]) -> SourceModel | None:
    """Return what a step was made of; None for one that MLflow keeps, whose published form answers for it."""
    if isinstance(step.model.source, MlflowSource):
        return None
    return load(step.model)


def _notes(steps: tuple[EnsembleStep, ...], originals: Mapping[str, SourceModel | None]) -> Iterator[str]:
    for step in steps:
        if originals.get(step.model) is None:
            why = f"version {step.version} is asked for" if step.version else "MLflow keeps its original"
            yield f"step {step.model} answers for itself on both sides: {why}"


def _dims(
    steps: tuple[EnsembleStep, ...],
    signature: Signature,
    originals: Mapping[str, SourceModel | None],
    built: Mapping[str, BuiltStep],
    declared: Mapping[str, DimRange],
) -> dict[str, DimRange]:
    """Return the dims of what goes in: what every step that has one of that name takes, and batches no step refuses."""
    used = {dim for spec in signature.inputs for dim in spec.shape if isinstance(dim, str)}
    if unknown := sorted(declared.keys() - used):
        raise SourceError(
            f"no input of the ensemble has the dim {unknown[0]!r}",
            f"it has {', '.join(sorted(used)) or 'none'}",
            code="source.dim-unused",
        )
    found = dict(declared)
    for original in originals.values():
        for name, dim in original.dims.items() if original else ():
            if name in used:
                known = found.get(name, dim)
                low, high = max(known.min, dim.min), min(known.max, dim.max)
                if name in declared and (low, high) != (known.min, known.max):
                    what = f"dims.{name} says {known.min} to {known.max}, and a step takes {dim.min} to {dim.max}"
                    raise SourceError(what, "narrow it, or widen the step's", code="source.ensemble")
                found[name] = DimRange(low, high, min(max(known.example, low), high))
    if missing := sorted(used - found.keys()):
        raise SourceError(
            f"nothing says how large {missing[0]!r} may be: no step that takes it is built from its original",
            f"declare it: dims: {{{missing[0]}: {{max: 32}}}}",
            code="source.ensemble",
        )
    sizes = [size for step in steps if (size := built[step.model].max_batch_size)]
    batch = signature.batch_dim
    if batch and sizes:
        dim = found[batch]
        most = max(min(dim.max, *sizes), 1)
        found[batch] = DimRange(min(dim.min, most), most, min(dim.example, most))
    return found


def _examples(
    steps: tuple[EnsembleStep, ...],
    names: tuple[str, ...],
    originals: Mapping[str, SourceModel | None],
    built: Mapping[str, BuiltStep],
) -> Examples:
    """Return a maker that asks the steps which take the inputs.

    Raises:
        SourceError: One of them has none.
    """
    makers: dict[str, tuple[SourceModel, str, bool]] = {}
    for step in steps:
        original = originals.get(step.model)
        for theirs, ours in step.inputs.items():
            if original is not None and ours in names:
                makers.setdefault(ours, (original, theirs, built[step.model].max_batch_size > 0))
    if missing := [name for name in names if name not in makers]:
        raise SourceError(
            f"there are no examples for input {missing[0]!r}",
            'give the ensemble its own: examples: "examples.py:texts"',
            code="source.ensemble",
        )
    return ForwardedExamples({name: makers[name] for name in names})


def _labels(
    steps: tuple[EnsembleStep, ...], originals: Mapping[str, SourceModel | None], outputs: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    return {
        ours: original.labels[theirs]
        for step in steps
        if (original := originals.get(step.model)) is not None
        for theirs, ours in step.outputs.items()
        if ours in outputs and theirs in original.labels
    }
