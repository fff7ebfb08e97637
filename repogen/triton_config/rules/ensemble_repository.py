"""Ensembles against the models that their steps name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from repogen.triton_config.rules.findings import Finding
from repogen.triton_config.text.view import dims_text, tensor_views

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tritonclient.grpc.model_config_pb2 import ModelConfig


@dataclass(frozen=True)
class Neighbor:
    """Another model of the repository.

    Attributes:
        config: Its config; None where it has none, or none that can be parsed.
        versions: Numbers of the versions that are served.
        guess: The largest batch that Triton gives it, where its config leaves that to Triton.
    """

    config: ModelConfig | None
    versions: tuple[int, ...]
    guess: int | None = None


@dataclass(frozen=True)
class _Shape:
    """What a tensor of the ensemble is, and who says so."""

    dtype: str
    dims: tuple[int, ...]
    batched: bool
    said_by: str

    @property
    def full(self) -> tuple[int, ...]:
        """Dims with the batch."""
        return (-1, *self.dims) if self.batched else self.dims


def ensemble_findings(config: ModelConfig, others: Mapping[str, Neighbor]) -> Iterator[Finding]:
    """Yield what an ensemble asks of the repository's other models and does not get.

    Args:
        config: The ensemble's.
        others: Every model of the repository, by name.
    """
    known: dict[str, _Shape] = {}
    for kind, tensors in (("input", config.input), ("output", config.output)):
        for view in tensor_views(tensors):
            # what goes on to the steps is what a reshape makes of it
            known[view.name] = _Shape(view.dtype, view.model_dims, config.max_batch_size > 0, f"the ensemble's {kind}")
    for index, step in enumerate(config.ensemble_scheduling.step):
        path = f"ensemble_scheduling.step[{index}]"
        model = others.get(step.model_name)
        if model is None:
            if step.model_name and not step.model_namespace:
                message = f"step {index + 1} asks for model {step.model_name!r}, which is not in the repository"
                yield Finding("RG501", "error", message, "add it, or correct model_name", f"{path}.model_name")
            continue
        if step.model_version >= 0 and step.model_version not in model.versions:
            message = f"step {index + 1} asks for version {step.model_version} of {step.model_name!r}"
            message += ", as one does that says nothing" if step.model_version == 0 else ""
            hint = f"served are {', '.join(map(str, model.versions)) or 'none'}; model_version: -1 takes the newest"
            yield Finding("RG501", "error", message, hint, f"{path}.model_version", "model_version: -1")
        yield from _batch(config, path, step.model_name, model)
        if model.config is not None and model.config.input and model.config.output:
            yield from _mapped(path, index, step, model.config, known)


def circle_findings(name: str, others: Mapping[str, Neighbor]) -> Iterator[Finding]:
    """Yield an ensemble that comes back to itself through the models of its steps."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        neighbor = others.get(pending.pop())
        for step in neighbor.config.ensemble_scheduling.step if neighbor and neighbor.config else ():
            if step.model_name == name:
                message = f"{name!r} is among its own steps, or among those of an ensemble in them"
                yield Finding("RG505", "error", message, "break the circle", "ensemble_scheduling")
                return
            if step.model_name not in seen:
                seen.add(step.model_name)
                pending.append(step.model_name)


def _batch(config: ModelConfig, path: str, name: str, model: Neighbor) -> Iterator[Finding]:
    largest = model.config.max_batch_size if model.guess is None and model.config is not None else model.guess
    if largest and config.max_batch_size > largest:  # one of 0 takes whole tensors
        message = f"the ensemble takes batches up to {config.max_batch_size}, and {name!r} up to {largest}"
        yield Finding("RG503", "error", message, "lower the ensemble's max_batch_size", path)


def _mapped(
    path: str, index: int, step: ModelConfig, model: ModelConfig, known: dict[str, _Shape]
) -> Iterator[Finding]:
    for key, mapped, tensors in (
        ("input_map", step.input_map, model.input),
        ("output_map", step.output_map, model.output),
    ):
        views = {view.name: view for view in tensor_views(tensors)}
        for theirs, ours in mapped.items():
            if theirs not in views:
                kind = key.removesuffix("_map")
                message = f"step {index + 1} maps {kind} {theirs!r}, which {step.model_name!r} does not have"
                yield Finding("RG502", "error", message, f"it has {', '.join(views)}", f"{path}.{key}")
                continue
            view = views[theirs]
            shape = _Shape(view.dtype, view.dims, model.max_batch_size > 0, f"{step.model_name!r}")
            yield from _agree(f"{path}.{key}", ours, known.setdefault(ours, shape), shape)
    required = [tensor.name for tensor in model.input if not tensor.optional]
    if missing := [name for name in required if name not in step.input_map] if step.input_map else []:
        message = f"step {index + 1} gives {step.model_name!r} no {', '.join(map(repr, missing))}"
        yield Finding("RG502", "error", message, "map every input of the model", f"{path}.input_map")


def _agree(path: str, name: str, one: _Shape, other: _Shape) -> Iterator[Finding]:
    if one.dtype != other.dtype:
        message = f"tensor {name!r} is TYPE_{one.dtype} by {one.said_by} and TYPE_{other.dtype} by {other.said_by}"
        yield Finding("RG503", "error", message, "give it one type", path)
    elif not _equal(one.full, other.full):
        # Triton compares with the batch and without; requests have it or have it not
        loads = one.batched != other.batched and _equal(one.dims, other.dims)
        message = (
            f"tensor {name!r} is {dims_text(one.full)} by {one.said_by} and {dims_text(other.full)} by {other.said_by} "
            "(the batch included)"
        )
        yield Finding("RG503", "warning" if loads else "error", message, "give it one shape", path)


def _equal(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(-1 in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))
