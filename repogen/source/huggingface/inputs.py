"""The inputs of a task: what a model's forward takes, with the sizes that its configuration allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from repogen.artifacts.tensors import TensorSpec
from repogen.errors import SourceError
from repogen.source.common.call import Call, Placeholder
from repogen.source.common.inputs import BATCH, FOUND_BATCH, Inputs, dim_ranges
from repogen.source.huggingface.audio import audio_part
from repogen.source.huggingface.image import image_part
from repogen.source.huggingface.text import text_part
from repogen.spec.models import DimSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from repogen.artifacts.source import DimRange
    from repogen.artifacts.tensors import Array
    from repogen.source.common.call import Parameters
    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.tasks import Task
    from repogen.source.huggingface.untyped import Model
    from repogen.spec.models import ModelSpec

CONTRASTIVE = "zero-shot-image-classification"
TEXT_BATCH, IMAGE_BATCH = "text_batch", "image_batch"
_BATCH = DimSpec(min=FOUND_BATCH.min, max=FOUND_BATCH.max, example=FOUND_BATCH.example)
_BATCHES = {IMAGE_BATCH: DimSpec(min=FOUND_BATCH.min, max=FOUND_BATCH.max, example=FOUND_BATCH.example + 1)}
_PIXELS = "pixel_values"
_TEXT = "input_ids"


class Part(Protocol):
    """The inputs of one modality."""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """The inputs; their symbolic dims are those of ``bounds``, and a batch."""

    @property
    def bounds(self) -> Mapping[str, DimSpec]:
        """Symbolic dims but for the batch."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know."""

    def draw(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return one array for each input; ``sizes`` gives every symbolic dim."""


@dataclass(frozen=True)
class TaskExamples:
    """Example inputs drawn as a task's own data looks."""

    parts: tuple[Part, ...]
    fixed: Mapping[str, int]

    def __call__(self, sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Return the arrays of all modalities."""
        arrays: dict[str, Array] = {}
        for part in self.parts:
            arrays |= part.draw({**self.fixed, **sizes}, seed)
        return arrays


def task_inputs(module: Model, parameters: Parameters, task: Task, checkpoint: Checkpoint, model: ModelSpec) -> Inputs:
    """Return what a task's forward is given.

    Args:
        module: With its weights; its tables of positions and tokens bound the sizes.
        parameters: Of its forward.
        task: Its task.
        checkpoint: Its configuration and those of its processors.
        model: The spec entry, whose dims win; one whose bounds are equal is a fixed size.

    Raises:
        SourceError: The forward takes what repogen can't make up, or the spec's dims are none of the inputs'.
    """
    parts = _parts(module, parameters, task, checkpoint, tuple(model.dims))
    dims, fixed = _ranges(parts, model.dims)
    specs = tuple(_with_fixed(spec, fixed) for part in parts for spec in part.specs)
    call = Call((), {spec.name: Placeholder(index) for index, spec in enumerate(specs)})
    notes = tuple(note for part in parts for note in part.notes)
    shown = ", ".join(f"{name} {dim.min} to {dim.max}" for name, dim in dims.items())
    told = f"inputs of the task: {'; '.join(map(_shown, specs))}; dims: {shown} (dims: in the spec sets other bounds)"
    return Inputs(specs, dims, TaskExamples(parts, fixed), call, (told, *notes))


def _parts(
    module: Model,
    parameters: Parameters,
    task: Task,
    checkpoint: Checkpoint,
    named: tuple[str, ...],
) -> tuple[Part, ...]:
    if _TEXT in parameters and _PIXELS in parameters:
        if task.name != CONTRASTIVE:
            raise _unable(task, parameters)
        text = text_part(module, parameters, checkpoint, TEXT_BATCH)
        return text, image_part(module, checkpoint, IMAGE_BATCH, named)
    main = getattr(module, "main_input_name", "")
    if main == _TEXT and _TEXT in parameters:
        return (text_part(module, parameters, checkpoint, BATCH),)
    if main == _PIXELS and _PIXELS in parameters:
        return (image_part(module, checkpoint, BATCH, named),)
    if main in {"input_values", "input_features"} and main in parameters:
        return (audio_part(module, parameters, checkpoint, main, named),)
    raise _unable(task, parameters)


def _ranges(parts: tuple[Part, ...], wanted: Mapping[str, DimSpec]) -> tuple[dict[str, DimRange], dict[str, int]]:
    """Return the range of every symbolic dim, and the sizes of those that the spec fixes."""
    known: dict[str, DimSpec] = {}
    for part in parts:
        used = [dim for spec in part.specs for dim in spec.shape if isinstance(dim, str)]
        known |= {name: part.bounds.get(name, _BATCHES.get(name, _BATCH)) for name in used}
    if strange := [name for name in wanted if name not in known]:
        raise SourceError(
            f"dims: {', '.join(strange)} is no dim of the inputs, which are {', '.join(known) or 'all fixed'}",
            "name one of those; or declare inputs: with dims of your own",
            code="source.dim-unused",
        )
    merged = {name: wanted.get(name, spec) for name, spec in known.items()}
    fixed = {name: spec.max for name, spec in merged.items() if spec.min == spec.max}
    return dim_ranges({name: spec for name, spec in merged.items() if name not in fixed}), fixed


def _with_fixed(spec: TensorSpec, fixed: Mapping[str, int]) -> TensorSpec:
    shape = tuple(fixed.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
    return TensorSpec(spec.name, spec.dtype, shape)


def _shown(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.dtype} [{', '.join(map(str, spec.shape))}]"


def _unable(task: Task, parameters: Parameters) -> SourceError:
    return SourceError(
        f"the inputs of this model for {task.name} are not known: forward({', '.join(list(parameters)[:8])})",
        "declare inputs: (and dims:), or give examples:",
        code="source.hf-task",
    )
