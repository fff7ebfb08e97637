"""A checkpoint with its task -> SourceModel."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transformers.dynamic_module_utils import get_class_from_dynamic_module

from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.inputs import find_inputs
from repogen.source.huggingface.card import pipeline_tag
from repogen.source.huggingface.configuration import read_config
from repogen.source.huggingface.files import CONFIG, has_remote_code
from repogen.source.huggingface.hub import find_checkpoint
from repogen.source.huggingface.inputs import task_inputs
from repogen.source.huggingface.labels import labels_of
from repogen.source.huggingface.outputs import choose
from repogen.source.huggingface.tasks import choose_head, remote_head
from repogen.source.huggingface.weights import load_model
from repogen.source.torch.eager import source_from_module
from repogen.source.torch.module import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.source.common.inputs import Inputs
    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.tasks import Head
    from repogen.source.huggingface.untyped import Config, Model
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import HuggingFaceSource


def load_huggingface(request: SourceRequest[HuggingFaceSource]) -> SourceModel:
    """Load a model of transformers, and find its inputs, outputs and labels from its task and configuration.

    Args:
        request: Which model; inputs, examples, dims and outputs of its spec entry override what is derived.

    Raises:
        SourceError: The files, the weights, the task or the code of the model are not usable; it says which and why.
    """
    source, model, root = request.options, request.model, request.root
    checkpoint = find_checkpoint(source, root)
    config = read_config(checkpoint, model.output_names)
    head = _head(source.task, checkpoint, config)
    loaded, loading_notes = load_model(head, checkpoint, config, source.dtype)
    encoder = loaded.get_encoder() if head.task.encoder else loaded
    module, done = prepare(encoder, None)
    inputs = _inputs(module, head, checkpoint, model, root)
    try:
        chosen = choose(module, inputs, head.task, model)
        found = source_from_module(module, inputs, model.model_copy(update={"outputs": chosen}), root)
    except SourceError as error:
        derived = not model.inputs and model.examples is None
        raise _unpadded(loaded, checkpoint) or (_unknown(error, head) if derived else error) from error
    companions, strangers = checkpoint.companions()
    labels, unlabeled = labels_of(loaded.config, head.task, found.signature)
    told = (f"task {head.task.name}: {type(loaded).__name__}{', its encoder' if head.task.encoder else ''}",)
    return replace(
        found,
        notes=(*told, *checkpoint.notes, *loading_notes, *done, *found.notes, *strangers, *unlabeled),
        files=checkpoint.files,
        companions=companions,
        labels=labels,
    )


def _head(task: str, checkpoint: Checkpoint, config: Config) -> Head:
    if not has_remote_code(checkpoint.config):
        return choose_head(task, config, checkpoint.config, pipeline_tag(checkpoint.directory))
    head = remote_head(task, checkpoint.config)
    named: Any = checkpoint.config["auto_map"]
    try:
        own = get_class_from_dynamic_module(named[head.model.__name__], checkpoint.directory)
    except RAISED as error:
        raise user_error(error, f"the code of {checkpoint.name} failed", checkpoint.directory) from error
    return replace(head, model=own)


def _unknown(error: SourceError, head: Head) -> SourceError:
    """Say of a forward that fails on inputs that repogen made up whose fault that is."""
    if error.code != "source.user-code":
        return error
    return SourceError(
        f"repogen made up inputs for {head.task.name}, and they are not this model's: {error.message}",
        "declare inputs: (and dims:), or give examples:",
        code="source.hf-task",
        where=error.where,
        details=error.details,
    )


def _unpadded(loaded: Model, checkpoint: Checkpoint) -> SourceError | None:
    """Say why a decoder's classifier fails when it was not told which token pads: it looks for each row's last one."""
    classifies = type(loaded).__name__.endswith("ForSequenceClassification")
    if not classifies or getattr(loaded.config, "pad_token_id", None) is not None:
        return None
    return SourceError(
        f"{CONFIG} of {checkpoint.name} has no pad_token_id, and without it {type(loaded).__name__} takes one row at a "
        "time: it can't tell the last token of a row from padding",
        "set it there to the id that your tokenizer pads with, often that of eos_token_id",
        code="source.hf-files",
        where=CONFIG,
    )


def _inputs(module: Model, head: Head, checkpoint: Checkpoint, model: ModelSpec, root: Path) -> Inputs:
    parameters = inspect.signature(module.forward).parameters
    if model.inputs or model.examples is not None:
        return find_inputs(model, root, parameters)
    return task_inputs(module, parameters, head.task, checkpoint, model)
