"""Loads a transformers checkpoint as a SourceModel."""

from __future__ import annotations

import inspect
import os
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transformers import dynamic_module_utils
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.common.dim_names import BATCH
from repogen.source.common.inputs import find_inputs
from repogen.source.huggingface.audio import SAMPLES, SPECTROGRAM, audio_inputs
from repogen.source.huggingface.checkpoint import CONFIG
from repogen.source.huggingface.configuration import read_config
from repogen.source.huggingface.hub import find_checkpoint, hub_offline
from repogen.source.huggingface.image import PIXELS, image_inputs
from repogen.source.huggingface.inputs import IMAGE_BATCH, TEXT_BATCH, combine
from repogen.source.huggingface.outputs import choose_outputs, class_labels
from repogen.source.huggingface.tasks import CONTRASTIVE, choose_head, remote_head
from repogen.source.huggingface.text import IDS, text_inputs
from repogen.source.huggingface.weights import load_model
from repogen.source.torch.eager import source_from_module
from repogen.source.torch.module import prepare

if TYPE_CHECKING:
    from repogen.artifacts.source import SourceModel
    from repogen.source.common.call import Parameters
    from repogen.source.huggingface.checkpoint import Checkpoint
    from repogen.source.huggingface.configuration import Config
    from repogen.source.huggingface.inputs import ModalityInputs
    from repogen.source.huggingface.tasks import Head, Model, Task
    from repogen.source.interface import SourceRequest
    from repogen.spec.models import ModelSpec
    from repogen.spec.sources import HuggingFaceSource

_DECLARE = "declare inputs: (and dims:), or give examples:"


def load_huggingface(request: SourceRequest[HuggingFaceSource]) -> SourceModel:
    """Load a transformers model; its task and configuration determine inputs, outputs and labels.

    Args:
        request: The model, its task and dtype; inputs, examples, dims and outputs of the spec entry override the
            derived ones.

    Raises:
        SourceError: The files, weights, task or code of the model are not usable; the message says why.
    """
    if modules := os.environ.get("HF_MODULES_CACHE"):  # a fork server imported transformers before this was set
        dynamic_module_utils.HF_MODULES_CACHE = modules  # type: ignore[attr-defined] # a private name
    checkpoint = find_checkpoint(request.options, request.root)
    with nullcontext() if checkpoint.config.has_remote_code else hub_offline():
        return _load(checkpoint, request)


def _load(checkpoint: Checkpoint, request: SourceRequest[HuggingFaceSource]) -> SourceModel:
    source, model, root = request.options, request.model, request.root
    config = read_config(checkpoint, model.output_names)
    head = _head(source.task, checkpoint, config)
    network, weight_notes = load_model(head, checkpoint, config, source.dtype)
    encoder = network.get_encoder() if head.task.encoder else network
    module, module_notes = prepare(encoder, None)
    declared = bool(model.inputs) or model.examples is not None
    parameters = inspect.signature(module.forward).parameters
    if declared:
        inputs = find_inputs(model, root, parameters)
    else:
        inputs = combine(_modalities(module, parameters, head.task, checkpoint, model), model.dims)
    try:
        outputs = choose_outputs(module, inputs, head.task, model)
        source_model = source_from_module(module, inputs, model.model_copy(update={"outputs": outputs}), root)
    except SourceError as error:
        raise _explain(error, head.task, network, checkpoint, declared=declared) from error
    companions, companion_notes = checkpoint.companions()
    labels, label_notes = class_labels(network.config, head.task, source_model.signature)
    summary = f"task {head.task.name}: {type(network).__name__}{', only its encoder' if head.task.encoder else ''}"
    notes = (
        summary,
        *_cache_note(head.task),
        *checkpoint.notes,
        *weight_notes,
        *module_notes,
        *source_model.notes,
        *companion_notes,
        *label_notes,
    )
    return replace(source_model, notes=notes, files=checkpoint.files, companions=companions, labels=labels)


def _cache_note(task: Task) -> tuple[str, ...]:
    """Return that a decoder is published without its key-value cache."""
    if task.name != "text-generation":
        return ()
    note = (
        "published without the key-value cache (use_cache is off): each request computes all tokens of its sequence, "
        "so a loop that generates one token per request repeats that work"
    )
    return (note,)


def _head(task: str, checkpoint: Checkpoint, config: Config) -> Head:
    if not checkpoint.config.has_remote_code:
        return choose_head(task, checkpoint, config)
    head = remote_head(task, checkpoint.config)
    class_name: Any = (checkpoint.config.auto_map or {})[head.model.__name__]
    try:
        remote_class = get_class_from_dynamic_module(class_name, checkpoint.directory)
    except RAISED as error:
        raise user_error(error, f"the code of {checkpoint.name} failed", checkpoint.directory) from error
    return replace(head, model=remote_class)


def _modalities(
    module: Model, parameters: Parameters, task: Task, checkpoint: Checkpoint, model: ModelSpec
) -> tuple[ModalityInputs, ...]:
    """Return the inputs of each modality; the model's embeddings and configuration bound their dims."""
    main = getattr(module, "main_input_name", "")
    if IDS in parameters and PIXELS in parameters:
        main = CONTRASTIVE if task.name == CONTRASTIVE else ""
    if main == CONTRASTIVE:
        return (
            text_inputs(module, parameters, checkpoint, TEXT_BATCH),
            image_inputs(module, checkpoint, IMAGE_BATCH, model.dims),
        )
    if main in parameters:
        if main == IDS:
            return (text_inputs(module, parameters, checkpoint, BATCH),)
        if main == PIXELS:
            return (image_inputs(module, checkpoint, BATCH, model.dims),)
        if main in {SAMPLES, SPECTROGRAM}:
            return (audio_inputs(module, parameters, checkpoint, main),)
    parameter_names = ", ".join(list(parameters)[:8])
    raise SourceError(
        f"repogen cannot derive the inputs of this model for {task.name}: forward({parameter_names})",
        _DECLARE,
        code="source.hf-task",
    )


def _explain(error: SourceError, task: Task, loaded: Model, checkpoint: Checkpoint, *, declared: bool) -> SourceError:
    """Return an error with a better explanation of why forward failed, if there is one."""
    class_name = type(loaded).__name__
    if class_name.endswith("ForSequenceClassification") and getattr(loaded.config, "pad_token_id", None) is None:
        return SourceError(
            f"{CONFIG} of {checkpoint.name} has no pad_token_id; without it, {class_name} cannot find the last token "
            "of a padded row and accepts only one row at a time",
            "set pad_token_id to the ID that your tokenizer pads with, often that of eos_token_id",
            code="source.hf-files",
            where=CONFIG,
        )
    if declared or error.code != "source.user-code":
        return error
    return SourceError(
        f"the model failed on the inputs that repogen derived for {task.name}: {error.message}",
        _DECLARE,
        code="source.hf-task",
        where=error.where,
        details=error.details,
    )
