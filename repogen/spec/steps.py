"""Rules about Python code and ensembles: what they need of the spec, and how an ensemble's tensors run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from repogen.spec.problems import nearest, printable
from repogen.spec.sources import EnsembleSource, PythonSource
from repogen.spec.structure import Finding, PartialModel
from repogen.triton_config.sections.model import NOT_FOR_ENSEMBLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import StepSpec

Findings: TypeAlias = "Iterator[Finding]"


def check_steps(models: Mapping[str, PartialModel]) -> Findings:
    """Yield what is wrong with Python code and ensembles; paths start below ``models``.

    Args:
        models: All of the spec's, by name; of one whose source is broken nothing is asked.
    """
    for name, model in models.items():
        if "source" in model.broken:
            continue
        if isinstance(model.spec.source, PythonSource):
            found = _python(model)
        elif isinstance(model.spec.source, EnsembleSource):
            found = _ensemble(name, model, models)
        else:
            found = _graph(model)
        yield from (finding._replace(path=(name, *finding.path)) for finding in found)


def _graph(model: PartialModel) -> Findings:
    spec = model.spec
    if spec.declared_outputs and "outputs" not in model.broken:
        what = "dtypes and shapes come from the graph"
        yield Finding(("outputs",), what, f"list the names: [{', '.join(spec.output_names)}]")
    for name, declared in spec.inputs.items() if "inputs" not in model.broken else ():
        if declared.dtype == "string":
            what = "strings are for kind: python, which makes numbers of them: PyTorch has none"
            yield Finding(("inputs", name, "dtype"), what, "feed it from a tokenizer, in an ensemble")


def _python(model: PartialModel) -> Findings:
    spec = model.spec
    if "inputs" not in model.broken and not spec.inputs:
        yield Finding((), "Python code declares its inputs", "inputs: {text: {dtype: string, shape: [batch, 1]}}")
    if "outputs" not in model.broken and not spec.declared_outputs:
        hint = "outputs: {input_ids: {dtype: int64, shape: [batch, tokens]}}"
        yield Finding(("outputs",) if spec.outputs else (), "Python code declares its outputs", hint)
    for name, declared in spec.inputs.items() if not {"inputs", "examples"} & model.broken else ():
        if declared.dtype == "string" and spec.examples is None:
            yield Finding(("inputs", name), "no random string is safe to try", 'examples: "examples.py:texts"')


def _ensemble(name: str, model: PartialModel, models: Mapping[str, PartialModel]) -> Findings:
    spec = model.spec
    if "inputs" not in model.broken and spec.inputs:
        yield Finding(("inputs",), "an ensemble's inputs are those of its steps", "remove it")
    for key in NOT_FOR_ENSEMBLES if "triton" not in model.broken else ():
        if getattr(spec.triton, key):
            what = "an ensemble runs nothing by itself: Triton refuses it"
            yield Finding(("triton", key), what, "say it of the models in its steps")
    unknown = list(_unknown_models(name, spec, models))
    yield from unknown
    if not unknown:
        yield from _circle(name, models)
        yield from _tensors(spec, models)


def _unknown_models(name: str, spec: ModelSpec, models: Mapping[str, PartialModel]) -> Findings:
    others = [other for other in models if other != name]
    for position, step in enumerate(_steps(spec)):
        path = ("source", "steps", position, "model")
        if step.model == name:
            yield Finding(path, "an ensemble cannot be a step of itself")
        elif step.model not in models:
            hint = nearest(step.model, others) if others else "add it under models:"
            yield Finding(path, f'this spec has no model "{printable(step.model)}"', hint)


def _circle(name: str, models: Mapping[str, PartialModel]) -> Findings:
    seen: set[str] = set()
    waiting = [step.model for step in _steps(models[name].spec)]
    while waiting:
        model = waiting.pop()
        if model == name:
            yield Finding(("source", "steps"), "its steps lead back to itself", "break the circle")
            return
        if model in models and model not in seen:
            seen.add(model)
            waiting += [step.model for step in _steps(models[model].spec)]


def _tensors(spec: ModelSpec, models: Mapping[str, PartialModel]) -> Findings:
    """Yield tensors that are made twice, names that a step's model is known not to have, and two versions of one."""
    makers: dict[str, int] = {}
    versions: dict[str, int | None] = {}
    for position, step in enumerate(_steps(spec)):
        path = ("source", "steps", position)
        if versions.setdefault(step.model, step.version) != step.version:
            yield Finding((*path, "model"), f"{step.model} is asked for in two versions", "ask for one of them")
        target = models[step.model].spec
        for theirs, ours in step.outputs.items():
            if ours in makers:
                what = f'"{printable(ours)}" is made by step {makers[ours] + 1}, too'
                yield Finding((*path, "outputs", theirs), what, "give each tensor a name of its own")
            makers.setdefault(ours, position)
        for key, known in (("inputs", tuple(target.inputs)), ("outputs", target.output_names)):
            for theirs in getattr(step, key) if known else ():
                if theirs not in known:
                    what = f'{step.model} has no {key.removesuffix("s")} "{printable(theirs)}"'
                    yield Finding((*path, key, theirs), what, nearest(theirs, known))


def _steps(spec: ModelSpec) -> tuple[StepSpec, ...]:
    return spec.source.steps if isinstance(spec.source, EnsembleSource) else ()
