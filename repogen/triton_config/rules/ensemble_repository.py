"""Rules that compare an ensemble with the models that its steps name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding, listed
from repogen.triton_config.text.view import TensorView, dims_text, tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tritonclient.grpc.model_config_pb2 import ModelConfig


@dataclass(frozen=True)
class ModelInRepository:
    """A model that an ensemble can use.

    Attributes:
        config: Its config; None if it has none, or one that cannot be parsed.
        versions: Numbers of the served versions.
        auto_max_batch_size: The max_batch_size that Triton sets if the config is incomplete; None if it is complete.
    """

    config: ModelConfig | None
    versions: tuple[int, ...]
    auto_max_batch_size: int | None = None


@dataclass(frozen=True)
class _Shape:
    """Type and shape of a tensor of the ensemble, and the model that declares it.

    ``batched`` is None if it is unknown because ``max_batch_size`` is invalid.
    """

    dtype: str
    dims: tuple[int, ...]
    batched: bool | None
    declared_by: str

    @property
    def full(self) -> tuple[int, ...]:
        """Dims with the batch."""
        return (-1, *self.dims) if self.batched else self.dims


@dataclass(frozen=True)
class _Views:
    """The tensors of a step's model by name, the names of the inputs that it requires, and whether it batches."""

    inputs: Mapping[str, TensorView]
    outputs: Mapping[str, TensorView]
    required: tuple[str, ...]
    batched: bool | None

    @classmethod
    def of(cls, model: ModelConfig) -> _Views:
        """Read a model's config."""
        inputs = {view.name: view for view in tensor_views(model.input)}
        outputs = {view.name: view for view in tensor_views(model.output)}
        required = tuple(tensor.name for tensor in model.input if not tensor.optional)
        return cls(inputs, outputs, required, _is_batched(model))


def _is_batched(model: ModelConfig) -> bool | None:
    """Return whether a model batches; None if its max_batch_size is invalid."""
    return None if model.max_batch_size < 0 else model.max_batch_size > 0


def ensemble_findings(config: ModelConfig, models: Mapping[str, ModelInRepository]) -> Iterator[Finding]:
    """Yield the mismatches between an ensemble and the models of its steps.

    Args:
        config: The ensemble's config.
        models: Every model of the repository, by name.
    """
    shapes: dict[str, _Shape] = {}
    for kind, tensors in (("input", config.input), ("output", config.output)):
        for view in tensor_views(tensors):
            # The steps receive the shape after a reshape.
            shapes[view.name] = _Shape(view.dtype, view.model_dims, _is_batched(config), f"the ensemble's {kind}")
    views: dict[str, _Views] = {}
    for index, step in enumerate(config.ensemble_scheduling.step):
        path = f"ensemble_scheduling.step[{index}]"
        model = models.get(step.model_name)
        if model is None:
            if step.model_name and not step.model_namespace:
                message = f"step {index + 1} uses model {step.model_name!r}, which is not in the repository"
                yield Finding("RG501", "error", message, "add it, or correct model_name", f"{path}.model_name")
            continue
        yield from _version_findings(index, step, model)
        yield from _batch_findings(config, path, step.model_name, model)
        if model.config is not None and model.config.input and model.config.output:
            if step.model_name not in views:
                views[step.model_name] = _Views.of(model.config)
            yield from _map_findings(index, step, views[step.model_name], shapes)


def cycle_findings(name: str, models: Mapping[str, ModelInRepository]) -> Iterator[Finding]:
    """Yield an error if an ensemble contains itself through the models of its steps."""
    visited_models: set[str] = set()
    pending = [name]
    while pending:
        model = models.get(pending.pop())
        for step in model.config.ensemble_scheduling.step if model and model.config else ():
            if step.model_name == name:
                message = f"the steps of {name!r} lead back to {name!r}"
                yield Finding("RG505", "error", message, "break the cycle", "ensemble_scheduling")
                return
            if step.model_name not in visited_models:
                visited_models.add(step.model_name)
                pending.append(step.model_name)


def _version_findings(index: int, step: ModelConfig, model: ModelInRepository) -> Iterator[Finding]:
    if step.model_version >= 0 and step.model_version not in model.versions:
        message = f"step {index + 1} uses version {step.model_version} of {step.model_name!r}, which is not served"
        message += " (0 is the default of model_version)" if step.model_version == 0 else ""
        served = listed(map(str, model.versions)) or "none"
        hint = f"served versions: {served}; model_version: -1 uses the newest"
        field = f"ensemble_scheduling.step[{index}].model_version"
        yield Finding("RG501", "error", message, hint, field, "model_version: -1", guess=True)


def _batch_findings(config: ModelConfig, path: str, name: str, model: ModelInRepository) -> Iterator[Finding]:
    largest = model.auto_max_batch_size
    if largest is None and model.config is not None:
        largest = model.config.max_batch_size
    if largest is not None and 0 < largest < config.max_batch_size:  # a model with 0 accepts whole tensors
        message = f"the ensemble accepts batches up to {config.max_batch_size}, and {name!r} up to {largest}"
        yield Finding("RG503", "error", message, "lower the ensemble's max_batch_size", path)


def _map_findings(index: int, step: ModelConfig, model: _Views, shapes: dict[str, _Shape]) -> Iterator[Finding]:
    path = f"ensemble_scheduling.step[{index}]"
    for key, tensor_map, views in (
        ("input_map", step.input_map, model.inputs),
        ("output_map", step.output_map, model.outputs),
    ):
        for model_name, ensemble_name in tensor_map.items():
            if model_name not in views:
                kind = key.removesuffix("_map")
                message = f"step {index + 1} maps {kind} {model_name!r}, which {step.model_name!r} does not have"
                yield Finding("RG502", "error", message, f"it has {listed(views)}", f"{path}.{key}")
                continue
            view = views[model_name]
            shape = _Shape(view.dtype, view.dims, model.batched, f"{step.model_name!r}")
            declared = shapes.setdefault(ensemble_name, shape)
            yield from _mismatch_findings(f"{path}.{key}", ensemble_name, declared, shape)
    missing_inputs = listed(repr(name) for name in model.required if name not in step.input_map)
    if step.input_map and missing_inputs:
        message = f"step {index + 1} does not map {missing_inputs} of {step.model_name!r}"
        yield Finding("RG502", "error", message, "map every input of the model", f"{path}.input_map")


def _mismatch_findings(path: str, name: str, first: _Shape, second: _Shape) -> Iterator[Finding]:
    if first.dtype != second.dtype:
        message = f"tensor {name!r} is TYPE_{first.dtype} in {first.declared_by} and "
        message += f"TYPE_{second.dtype} in {second.declared_by}"
        yield Finding("RG503", "error", message, "use the same type", path)
    elif None not in (first.batched, second.batched) and not _is_compatible(first.full, second.full):
        # Triton compares dims with and without the batch at load; at inference they must match with the batch.
        loads = first.batched != second.batched and _is_compatible(first.dims, second.dims)
        message = f"tensor {name!r} is {dims_text(first.full)} in {first.declared_by} and "
        message += f"{dims_text(second.full)} in {second.declared_by} (with the batch)"
        yield Finding("RG503", "warning" if loads else "error", message, "use the same shape", path)


def _is_compatible(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return len(first) == len(second) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(first, second, strict=True)
    )
