"""How an ensemble's tensors run: from which step to which, in what order, and whether both ends agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.artifacts.steps import EnsembleStep
from repogen.artifacts.tensors import TensorSpec
from repogen.errors import SourceError
from repogen.source.ensemble.wire import wire_specs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.source.common.built_step import BuiltStep
    from repogen.spec.sources import EnsembleSource


def mapped(source: EnsembleSource, outputs: tuple[str, ...], built: Mapping[str, BuiltStep]) -> list[EnsembleStep]:
    """Return the steps with every input named, and every output that somebody reads."""
    named = [
        (step, dict(step.inputs) or {spec.name: spec.name for spec in built[step.model].signature.inputs})
        for step in source.steps
    ]
    read = {ours for _, inputs in named for ours in inputs.values()} | set(outputs)
    made = []
    for step, inputs in named:
        theirs = [spec.name for spec in built[step.model].signature.outputs]
        same = {name: name for name in theirs if not outputs or name in read}
        made.append(EnsembleStep(step.model, inputs, dict(step.outputs) or same, step.version))
    return made


def in_order(steps: list[EnsembleStep]) -> tuple[EnsembleStep, ...]:
    """Return the steps so that each comes after those that make its inputs.

    Raises:
        SourceError: Some wait for each other.
    """
    makers = {ours: index for index, step in enumerate(steps) for ours in step.outputs.values()}
    done: list[int] = []
    while len(done) < len(steps):
        ready = [
            index
            for index, step in enumerate(steps)
            if index not in done and all(makers.get(ours) in {None, *done} for ours in step.inputs.values())
        ]
        if not ready:
            stuck = ", ".join(step.model for index, step in enumerate(steps) if index not in done)
            raise SourceError(
                f"the steps wait for each other's outputs: {stuck}", "break the circle", code="source.ensemble"
            )
        done += ready
    return tuple(steps[index] for index in done)


def ends(
    steps: tuple[EnsembleStep, ...], wanted: tuple[str, ...], built: Mapping[str, BuiltStep]
) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """Return the tensors that go in, which no step makes, and those that come out.

    Raises:
        SourceError: A step has no tensor of the name it is given, or nothing makes an output.
    """
    made = {ours: spec for step in steps for ours, spec in _tensors(step, built, "outputs")}
    read = {ours: spec for step in reversed(steps) for ours, spec in _tensors(step, built, "inputs")}
    _refuse_unlike(steps, {**read, **made}, built)
    names = wanted or tuple(name for name in made if name not in read)
    if missing := [name for name in names if name not in made]:
        raise SourceError(
            f"output {missing[0]!r} of the ensemble is made by no step",
            f"made are {', '.join(made)}",
            code="source.ensemble",
        )
    order = dict.fromkeys(ours for step in steps for ours in step.inputs.values() if ours not in made)
    return {name: _renamed(read[name], name) for name in order}, {name: _renamed(made[name], name) for name in names}


def _tensors(step: EnsembleStep, built: Mapping[str, BuiltStep], kind: str) -> Iterator[tuple[str, TensorSpec]]:
    known = wire_specs(getattr(built[step.model].signature, kind), built[step.model])
    mapped: dict[str, str] = getattr(step, kind)
    for theirs, ours in mapped.items():
        if theirs not in known:
            raise SourceError(
                f"step {step.model} has no {kind.removesuffix('s')} {theirs!r}",
                f"it has {', '.join(known)}",
                code="source.ensemble",
            )
        yield ours, known[theirs]
    if kind == "inputs" and (missing := [name for name in known if name not in mapped]):
        raise SourceError(
            f"step {step.model} is given no {missing[0]!r}", "map every input of the model", code="source.ensemble"
        )


def _refuse_unlike(
    steps: tuple[EnsembleStep, ...], known: Mapping[str, TensorSpec], built: Mapping[str, BuiltStep]
) -> None:
    """Refuse a tensor that is one thing where it is made, or first read, and another where it is read."""
    for step in steps:
        for ours, spec in _tensors(step, built, "inputs"):
            if not _alike(spec, known[ours]):
                raise SourceError(
                    f"tensor {ours!r} is {_described(known[ours])}, and step {step.model} takes {_described(spec)}",
                    "correct the maps of the steps, or put Python code (kind: python) between them",
                    code="source.ensemble",
                )


def _alike(one: TensorSpec, other: TensorSpec) -> bool:
    pairs = zip(one.shape, other.shape, strict=False)
    fits = all(isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs)
    return one.dtype == other.dtype and len(one.shape) == len(other.shape) and fits


def _described(spec: TensorSpec) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"


def _renamed(spec: TensorSpec, name: str) -> TensorSpec:
    return TensorSpec(name, spec.dtype, spec.shape)
