"""The steps of an ensemble: their order, the tensors that connect them, and running them as one model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from repogen.artifacts.file_names import CONFIG_FILE, MODEL_FILE, PYTHON_FILE
from repogen.artifacts.steps import EnsembleStep
from repogen.errors import SourceError
from repogen.source.interface import PUBLISHED_MODULE_PREFIX
from repogen.source.onnx.read import read_onnx
from repogen.source.onnx.reference import file_reference
from repogen.source.python.model import PythonCode, model_config, open_python
from repogen.triton_config.text.dims import wire_array
from repogen.triton_config.text.parse import parse_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.artifacts.source import Reference
    from repogen.artifacts.tensors import Array, Arrays, Signature, TensorSpec
    from repogen.source.interface import BuiltStep
    from repogen.spec.sources import EnsembleSource


@dataclass(frozen=True)
class ComposedModel:
    """An ensemble that runs its steps one after another.

    Attributes:
        steps: The steps; each comes after those that produce its inputs.
        models: The model of each step by name.
        outputs: Names of the ensemble's outputs.
    """

    steps: tuple[EnsembleStep, ...]
    models: Mapping[str, Reference]
    outputs: tuple[str, ...]

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs of the ensemble.

        Raises:
            SourceError: A step failed on its inputs.
        """
        tensors = dict(inputs)
        for step in self.steps:
            outputs = self.models[step.model]({name: tensors[tensor] for name, tensor in step.inputs.items()})
            tensors |= {tensor: outputs[name] for name, tensor in step.outputs.items()}
        return {name: tensors[name] for name in self.outputs}


@dataclass(frozen=True)
class WireModel:
    """A model whose tensors have the shapes in which Triton passes them between steps.

    Attributes:
        model: The model, with its own shapes.
        signature: Its signature, with its own shapes.
        batched: Whether ``max_batch_size`` is above 0: Triton then passes a ``[batch]`` tensor as ``[batch, 1]``.
    """

    model: Reference
    signature: Signature
    batched: bool

    def __call__(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs in the shapes in which Triton passes them.

        Raises:
            SourceError: The model failed on the inputs.
        """
        ranks = {spec.name: len(spec.shape) for spec in self.signature.inputs}
        model_inputs = {name: array.reshape(array.shape[: ranks[name]]) for name, array in inputs.items()}
        return {name: wire_array(array, batched=self.batched) for name, array in self.model(model_inputs).items()}


def wire_model(model: Reference, step: BuiltStep) -> Reference:
    """Return the model of a step with the shapes in which Triton passes its tensors."""
    return WireModel(model, step.signature, step.max_batch_size > 0)


def wire_specs(specs: tuple[TensorSpec, ...], step: BuiltStep) -> dict[str, TensorSpec]:
    """Return tensors of a step by name, in the shapes in which Triton passes them."""
    batched = step.max_batch_size > 0
    return {
        spec.name: replace(spec, shape=(*spec.shape, 1))
        if not spec.shape or (batched and len(spec.shape) == 1)
        else spec
        for spec in specs
    }


def open_published(name: str, built: Mapping[str, BuiltStep]) -> Reference:
    """Return a published version as it runs here: its graph in ONNX Runtime, its code, or its steps composed.

    Args:
        name: The model.
        built: The model and, if it is an ensemble, all its steps, by name.

    Raises:
        SourceError: The version cannot run here.
    """
    step = built[name]
    directory = step.version_dir
    inputs = {spec.name: spec.name for spec in step.signature.inputs}
    outputs = {spec.name: spec.name for spec in step.signature.outputs}
    if (directory / MODEL_FILE).is_file():
        path = directory / MODEL_FILE
        return file_reference(read_onnx(path), path, inputs, outputs)
    if (directory / PYTHON_FILE).is_file():
        config = parse_file(directory / CONFIG_FILE, f"config.pbtxt of {name}")
        parameters = {key: config.parameters[key].string_value for key in config.parameters}
        code = PythonCode(
            directory=directory.parent,
            version=directory.name,
            signature=step.signature,
            config=model_config(name, step.signature, step.max_batch_size, parameters),
            file=f"{name}/{directory.name}/{PYTHON_FILE}",
            root=directory.parent,
        )
        return open_python(code, prefix=PUBLISHED_MODULE_PREFIX)
    models = {inner.model: wire_model(open_published(inner.model, built), built[inner.model]) for inner in step.steps}
    return ComposedModel(sort_steps(step.steps), models, tuple(outputs))


def complete_steps(
    source: EnsembleSource, outputs: tuple[str, ...], built: Mapping[str, BuiltStep]
) -> tuple[EnsembleStep, ...]:
    """Return the steps of a spec with every input mapped, and every output that is used.

    Args:
        source: The ensemble's options.
        outputs: Names of the ensemble's outputs; empty if the spec does not name them.
        built: The model of each step by name.
    """
    inputs = [
        dict(step.inputs) or {spec.name: spec.name for spec in built[step.model].signature.inputs}
        for step in source.steps
    ]
    used_tensors = {tensor for mapping in inputs for tensor in mapping.values()} | set(outputs)
    steps = []
    for step, step_inputs in zip(source.steps, inputs, strict=True):
        names = [spec.name for spec in built[step.model].signature.outputs]
        same_names = {name: name for name in names if not outputs or name in used_tensors}
        steps.append(EnsembleStep(step.model, step_inputs, dict(step.outputs) or same_names, step.version))
    return tuple(steps)


def sort_steps(steps: tuple[EnsembleStep, ...]) -> tuple[EnsembleStep, ...]:
    """Return the steps in an order in which each comes after those that produce its inputs.

    Raises:
        SourceError: The steps form a cycle.
    """
    producers = {tensor: index for index, step in enumerate(steps) for tensor in step.outputs.values()}
    order: list[int] = []
    while len(order) < len(steps):
        ready = [
            index
            for index, step in enumerate(steps)
            if index not in order and all(producers.get(tensor) in {None, *order} for tensor in step.inputs.values())
        ]
        if not ready:
            cycle = ", ".join(step.model for index, step in enumerate(steps) if index not in order)
            raise SourceError(
                f"the steps form a cycle: {cycle}", "remove the circular dependency", code="source.ensemble"
            )
        order += ready
    return tuple(steps[index] for index in order)


def ensemble_tensors(
    steps: tuple[EnsembleStep, ...], outputs: tuple[str, ...], built: Mapping[str, BuiltStep]
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the ensemble's inputs, which no step produces, and its outputs.

    Args:
        steps: The steps, in order.
        outputs: Names of the outputs; if empty, the outputs are the tensors that no step reads.
        built: The model of each step by name.

    Raises:
        SourceError: A step does not have a mapped tensor, or no step produces an output.
    """
    produced = {tensor: spec for step in steps for tensor, spec in _step_tensors(step, built, "outputs")}
    consumed = {tensor: spec for step in reversed(steps) for tensor, spec in _step_tensors(step, built, "inputs")}
    _check_types(steps, {**consumed, **produced}, built)
    names = outputs or tuple(name for name in produced if name not in consumed)
    if missing_names := [name for name in names if name not in produced]:
        raise SourceError(
            f"no step produces output {missing_names[0]!r} of the ensemble",
            f"the steps produce {', '.join(produced)}",
            code="source.ensemble",
        )
    inputs = dict.fromkeys(tensor for step in steps for tensor in step.inputs.values() if tensor not in produced)
    return (
        tuple(replace(consumed[name], name=name) for name in inputs),
        tuple(replace(produced[name], name=name) for name in names),
    )


def _step_tensors(
    step: EnsembleStep, built: Mapping[str, BuiltStep], kind: Literal["inputs", "outputs"]
) -> Iterator[tuple[str, TensorSpec]]:
    """Yield the ensemble tensors of a step with the step's spec of each."""
    model = built[step.model]
    mapping, specs = (
        (step.inputs, wire_specs(model.signature.inputs, model))
        if kind == "inputs"
        else (step.outputs, wire_specs(model.signature.outputs, model))
    )
    for name, tensor in mapping.items():
        if name not in specs:
            raise SourceError(
                f"step {step.model} has no {kind.removesuffix('s')} {name!r}",
                f"it has {', '.join(specs)}",
                code="source.ensemble",
            )
        yield tensor, specs[name]
    if kind == "inputs" and (missing_names := [name for name in specs if name not in mapping]):
        raise SourceError(
            f"input {missing_names[0]!r} of step {step.model} is not mapped",
            "map every input of the model",
            code="source.ensemble",
        )


def _check_types(
    steps: tuple[EnsembleStep, ...], tensors: Mapping[str, TensorSpec], built: Mapping[str, BuiltStep]
) -> None:
    """Reject a tensor that a step reads with another dtype or shape than that of its producer or first reader."""
    for step in steps:
        for tensor, spec in _step_tensors(step, built, "inputs"):
            if not _is_compatible(spec, tensors[tensor]):
                raise SourceError(
                    f"tensor {tensor!r} is {_describe(tensors[tensor])}, but step {step.model} accepts "
                    f"{_describe(spec)}",
                    "correct the step's inputs or outputs, or convert the tensor in Python code (kind: python)",
                    code="source.ensemble",
                )


def _is_compatible(first: TensorSpec, second: TensorSpec) -> bool:
    pairs = zip(first.shape, second.shape, strict=False)
    sizes_match = all(isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs)
    return first.dtype == second.dtype and len(first.shape) == len(second.shape) and sizes_match


def _describe(spec: TensorSpec) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"
