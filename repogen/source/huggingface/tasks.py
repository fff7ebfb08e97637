"""Tasks: the transformers class with the right head, and the outputs to serve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import transformers
from transformers.models.auto import modeling_auto

from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.source.huggingface.checkpoint import Checkpoint, ConfigFile
    from repogen.source.huggingface.configuration import Config

Model: TypeAlias = Any
"""A transformers model, its class, or an auto class."""

CONTRASTIVE = "zero-shot-image-classification"
_FEATURES = "feature-extraction"
_AUTO = "auto"


@dataclass(frozen=True)
class Task:
    """What a model does.

    Attributes:
        name: The name that transformers' pipelines use.
        mappings: Names of the tables in ``modeling_auto`` that map a model type to its class.
        autos: Auto classes that a model with its own code is registered for.
        outputs: Outputs to serve, as far as the model returns them; empty for all but by-products.
        labels: Output whose last axis ``id2label`` describes.
        encoder: Whether only the encoder is exported.
    """

    name: str
    mappings: tuple[str, ...]
    autos: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    labels: str = ""
    encoder: bool = False


@dataclass(frozen=True)
class Head:
    """A task and the class that performs it.

    Attributes:
        task: The task.
        model: A class of transformers, or an auto class for a model with its own code.
    """

    task: Task
    model: Model


def _task(name: str, *kinds: str, outputs: tuple[str, ...] = ("logits",), labels: str = "") -> Task:
    """Return a task whose tables and auto classes have matching names, such as ``ImageClassification``."""
    mappings = tuple(f"MODEL_FOR_{_TABLES.get(kind) or _upper_snake(kind)}_MAPPING_NAMES" for kind in kinds)
    return Task(name, mappings, tuple(f"AutoModelFor{kind}" for kind in kinds), outputs, labels)


def _upper_snake(name: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).lstrip("_")


_TABLES = {
    "CTC": "CTC",
    "CausalLM": "CAUSAL_LM",
    "MaskedLM": "MASKED_LM",
    "Seq2SeqLM": "SEQ_TO_SEQ_CAUSAL_LM",
    "SpeechSeq2Seq": "SPEECH_SEQ_2_SEQ",
}
_IMAGE_TEXT_SCORES = ("logits_per_image", "logits_per_text")
_SPAN_SCORES = ("start_logits", "end_logits")
_MASKS = ("logits", "class_queries_logits", "masks_queries_logits", "pred_boxes", "pred_masks")
_BASE = (("MODEL_MAPPING_NAMES", "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES"), ("AutoModel", "AutoModelForTextEncoding"))
_ENCODER = replace(_task("seq2seq-encoder", "Seq2SeqLM", "SpeechSeq2Seq", outputs=("last_hidden_state",)), encoder=True)

# Architectures are looked up in this order: some are in several tables, and the first is their purpose.
TASKS = (
    _task("text-classification", "SequenceClassification", labels="logits"),
    _task("zero-shot-classification", "SequenceClassification", labels="logits"),
    _task("token-classification", "TokenClassification"),
    _task("question-answering", "QuestionAnswering", outputs=_SPAN_SCORES),
    _ENCODER,
    _task("fill-mask", "MaskedLM"),
    _task("text-generation", "CausalLM"),
    _task("image-classification", "ImageClassification", labels="logits"),
    _task(
        "image-segmentation",
        "SemanticSegmentation",
        "UniversalSegmentation",
        "InstanceSegmentation",
        "ImageSegmentation",
        outputs=_MASKS,
    ),
    _task("object-detection", "ObjectDetection", outputs=("logits", "pred_boxes")),
    _task("depth-estimation", "DepthEstimation", outputs=("predicted_depth",)),
    _task("audio-classification", "AudioClassification", labels="logits"),
    _task("automatic-speech-recognition", "CTC"),
    _task(CONTRASTIVE, "ZeroShotImageClassification", outputs=_IMAGE_TEXT_SCORES),
    Task(_FEATURES, *_BASE),
    Task("image-feature-extraction", *_BASE),
)
_BY_NAME = {task.name: task for task in TASKS}
_ALIASES = {
    "sentiment-analysis": "text-classification",
    "sequence-classification": "text-classification",
    "text-ranking": "text-classification",
    "nli": "zero-shot-classification",
    "ner": "token-classification",
    "sentence-similarity": _FEATURES,
    "sentence-embeddings": _FEATURES,
    "masked-lm": "fill-mask",
    "causal-lm": "text-generation",
    "text2text-generation": "seq2seq-encoder",
    "summarization": "seq2seq-encoder",
    "translation": "seq2seq-encoder",
    "semantic-segmentation": "image-segmentation",
    "instance-segmentation": "image-segmentation",
    "universal-segmentation": "image-segmentation",
    "ctc": "automatic-speech-recognition",
}


def choose_head(task_name: str, checkpoint: Checkpoint, config: Config) -> Head:
    """Choose the task and the class of a checkpoint that has no code of its own.

    The task ``auto`` is derived from the architecture, or else from the model card.

    Raises:
        SourceError: The task is unknown or cannot be derived, or transformers has no class for it.
    """
    architecture = checkpoint.config.architecture
    derived = _head_of_architecture(architecture, config) if task_name == _AUTO else None
    if derived is not None:
        return derived
    if task_name == _AUTO and architecture:
        raise _task_error(f"repogen does not support the task of {architecture}")
    name = checkpoint.pipeline_tag if task_name == _AUTO else task_name
    task = _find_task(name)
    if task is None:
        raise _task_error(
            _unsupported_message(name) if name else "config.json has no architecture to derive the task from"
        )
    model = _class_for(task, architecture, config)
    if model is None:
        kind = getattr(config, "model_type", "this model")
        task_names = ", ".join(dict.fromkeys(entry.name for entry in TASKS if _class_for(entry, "", config)))
        raise _task_error(
            f"transformers {transformers.__version__} does not support {name} for {kind}; "
            f"it supports: {task_names or 'no task'}"
        )
    if task.name == _FEATURES and getattr(config, "is_encoder_decoder", False):
        task = replace(task, encoder=True)
    return Head(task, model)


def remote_head(task_name: str, config: ConfigFile) -> Head:
    """Choose the task and the auto class of a checkpoint whose own code is trusted.

    Raises:
        SourceError: The code is not registered for an auto class of the task.
    """
    registered = list(config.auto_map or {})
    task = _find_task(task_name)
    if task_name != _AUTO and task is None:
        raise _task_error(_unsupported_message(task_name))
    for candidate in TASKS if task is None else (task,):
        for auto in candidate.autos:
            if auto in registered:
                return Head(candidate, getattr(transformers, auto))
    classes = ", ".join(registered) or "nothing"
    raise _task_error(f"the model's code registers {classes}, but no class for the task {task_name}")


def related_models(config: Config) -> Iterator[Model]:
    """Yield every class that transformers has for a configuration, with the heads of all tasks."""
    kind = getattr(config, "model_type", "")
    tables = [name for name in vars(modeling_auto) if name.startswith("MODEL") and name.endswith("_MAPPING_NAMES")]
    for name in dict.fromkeys(name for table in tables for name in _class_names(table, kind)):
        model = getattr(transformers, name, None)
        if model is not None:
            yield model


def _find_task(name: str) -> Task | None:
    return _BY_NAME.get(_ALIASES.get(name, name))


def _head_of_architecture(architecture: str, config: Config) -> Head | None:
    model = getattr(transformers, architecture, None) if architecture else None
    if model is None:
        return None
    for task in TASKS:
        if any(architecture in names for table in task.mappings for names in _all_class_names(table)):
            encoder = task.encoder or (task.name == _FEATURES and _has_decoder(architecture, config))
            return Head(replace(task, encoder=encoder), model)
    if "For" not in architecture and issubclass(model, transformers.PreTrainedModel):
        return Head(_BY_NAME[_FEATURES], model)  # such as CLIPTextModelWithProjection
    return None


def _has_decoder(architecture: str, config: Config) -> bool:
    encoders = modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.values()
    return bool(getattr(config, "is_encoder_decoder", False)) and architecture not in encoders


def _class_for(task: Task, architecture: str, config: Config) -> Model:
    """Return the class for a task: the checkpoint's architecture if it fits; None when there is no class."""
    kind = getattr(config, "model_type", "")
    tables = task.mappings
    if task.name == _FEATURES and getattr(config, "is_encoder_decoder", False):
        tables += _ENCODER.mappings
    names = [name for table in tables for name in _class_names(table, kind)]
    class_name = architecture if architecture in names else next(iter(names), "")
    return getattr(transformers, class_name, None) if class_name else None


def _all_class_names(table: str) -> Iterator[tuple[str, ...]]:
    for kind in getattr(modeling_auto, table, {}):
        yield _class_names(table, kind)


def _class_names(table: str, kind: str) -> tuple[str, ...]:
    names = getattr(modeling_auto, table, {}).get(kind, ())
    return (names,) if isinstance(names, str) else tuple(names)


def _unsupported_message(name: str) -> str:
    return f"repogen does not support the task {name!r}"


def _task_error(message: str) -> SourceError:
    return SourceError(
        message,
        f"set source.task to one of: {', '.join(_BY_NAME)}; for any other model, write a function that returns it, and "
        "declare its inputs: source: {kind: torch, factory: models.py:build}",
        code="source.hf-task",
    )
