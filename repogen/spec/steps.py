"""Rules for Python models, and for ensembles and their steps."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from repogen.spec.problems import MAX_SHOWN, nearest, printable
from repogen.spec.sources import EnsembleSource, PythonSource
from repogen.spec.structure import Finding, PartialModel
from repogen.triton_config.sections.model import NOT_FOR_ENSEMBLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import StepSpec

Findings: TypeAlias = "Iterator[Finding]"

_MAX_OF_MODEL = 2 * MAX_SHOWN
"""Problems of one model; some are compared with all names of the spec."""


def check_steps(models: Mapping[str, PartialModel]) -> Findings:
    """Yield the problems of Python models and ensembles; key paths start below ``models``.

    Args:
        models: All models of the spec, by name; a model with an invalid source is skipped.
    """
    for name, model in models.items():
        if "source" in model.broken:
            continue
        if isinstance(model.spec.source, PythonSource):
            findings = _python(model)
        elif isinstance(model.spec.source, EnsembleSource):
            findings = _ensemble(name, model, models)
        else:
            findings = _graph(model)
        first = islice(findings, _MAX_OF_MODEL)
        yield from (finding._replace(path=(name, *finding.path)) for finding in first)


def _graph(model: PartialModel) -> Findings:
    spec = model.spec
    if spec.declared_outputs and "outputs" not in model.broken:
        what = "dtypes and shapes come from the graph"
        yield Finding(("outputs",), what, f"list the names: [{', '.join(spec.output_names)}]")
    for name, declared in spec.inputs.items() if "inputs" not in model.broken else ():
        if declared.dtype == "string":
            what = "only kind: python supports strings; PyTorch has no string tensors"
            yield Finding(("inputs", name, "dtype"), what, "convert the text with a tokenizer, in an ensemble")


def _python(model: PartialModel) -> Findings:
    spec = model.spec
    if "inputs" not in model.broken and not spec.inputs:
        yield Finding((), "Python code must declare its inputs", "inputs: {text: {dtype: string, shape: [batch, 1]}}")
    if "outputs" not in model.broken and not spec.declared_outputs:
        hint = "outputs: {input_ids: {dtype: int64, shape: [batch, tokens]}}"
        yield Finding(("outputs",) if spec.outputs else (), "Python code must declare its outputs", hint)
    if isinstance(spec.source, PythonSource):
        yield from _packing(spec.source)
    for name, declared in spec.inputs.items() if not {"inputs", "examples"} & model.broken else ():
        if declared.dtype == "string" and spec.examples is None:
            yield Finding(
                ("inputs", name),
                "random strings may be invalid, so examples are required",
                'examples: "examples.py:texts"',
            )


def _packing(source: PythonSource) -> Findings:
    if source.pack and not source.requirements:
        yield Finding(("source", "pack"), "there is nothing to pack", "list the packages under requirements:")
    if source.pack_for and not source.pack:
        yield Finding(("source", "pack_for"), "it has no effect without pack: true", "add pack: true")


def _ensemble(name: str, model: PartialModel, models: Mapping[str, PartialModel]) -> Findings:
    spec = model.spec
    if "inputs" not in model.broken and spec.inputs:
        yield Finding(("inputs",), "the inputs of an ensemble follow from its steps", "remove it")
    for key in NOT_FOR_ENSEMBLES if "triton" not in model.broken else ():
        if getattr(spec.triton, key):
            what = "applies only to the models in the steps; Triton rejects it in an ensemble"
            yield Finding(("triton", key), what, "set it for the models in the steps")
    unknown = list(islice(_unknown_models(name, spec, models), _MAX_OF_MODEL))
    yield from unknown
    if not unknown:
        yield from _cycle(name, models)
        yield from _tensors(spec, models)


def _unknown_models(name: str, spec: ModelSpec, models: Mapping[str, PartialModel]) -> Findings:
    others = [model for model in models if model != name]
    for position, step in enumerate(_steps(spec)):
        path = ("source", "steps", position, "model")
        if step.model == name:
            yield Finding(path, "an ensemble cannot be a step of itself")
        elif step.model not in models:
            hint = nearest(step.model, others) if others else "add it under models:"
            yield Finding(path, f'this spec has no model "{printable(step.model)}"', hint)


def _cycle(name: str, models: Mapping[str, PartialModel]) -> Findings:
    visited_models: set[str] = set()
    pending = [step.model for step in _steps(models[name].spec)]
    while pending:
        model = pending.pop()
        if model == name:
            yield Finding(("source", "steps"), "the steps lead back to this ensemble", "break the cycle")
            return
        if model in models and model not in visited_models:
            visited_models.add(model)
            pending += [step.model for step in _steps(models[model].spec)]


def _tensors(spec: ModelSpec, models: Mapping[str, PartialModel]) -> Findings:
    """Yield tensors that are produced twice, unknown names of tensors, and models with two versions."""
    producers: dict[str, int] = {}
    versions: dict[str, int | None] = {}
    for position, step in enumerate(_steps(spec)):
        path = ("source", "steps", position)
        if versions.setdefault(step.model, step.version) != step.version:
            yield Finding((*path, "model"), f"{step.model} is used in two versions", "use one version")
        target = models[step.model].spec
        for output, tensor in step.outputs.items():
            if tensor in producers:
                what = f'"{printable(tensor)}" is also an output of step {producers[tensor] + 1}'
                yield Finding((*path, "outputs", output), what, "use a unique name for each tensor")
            producers.setdefault(tensor, position)
        for key, names in (("inputs", tuple(target.inputs)), ("outputs", target.output_names)):
            for name in getattr(step, key) if names else ():
                if name not in names:
                    what = f'{step.model} has no {key.removesuffix("s")} "{printable(name)}"'
                    yield Finding((*path, key, name), what, nearest(name, names))


def _steps(spec: ModelSpec) -> tuple[StepSpec, ...]:
    return spec.source.steps if isinstance(spec.source, EnsembleSource) else ()
