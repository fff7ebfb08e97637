"""What a model is for: the class of transformers that has the right head, and the outputs that matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import transformers
from transformers.models.auto import modeling_auto

from repogen.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from repogen.source.huggingface.untyped import Config, Model


@dataclass(frozen=True)
class Task:
    """One kind of model.

    Attributes:
        name: As pipelines call it.
        mappings: Names in transformers' ``modeling_auto`` of the tables from a model's type to its class.
        autos: Its auto classes, which a model with code of its own is registered for.
        outputs: Keys of its answer that are served, as far as it has them; empty for all that are no by-product.
        labels: Output whose last axis ``id2label`` names.
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
    """A task and the class that does it.

    Attributes:
        task: The task.
        model: A class of transformers, or the auto class for a model with code of its own.
    """

    task: Task
    model: Model


def _task(name: str, *kinds: str, outputs: tuple[str, ...] = ("logits",), labels: str = "") -> Task:
    """Return a task whose tables and auto classes are called alike, as ``ImageClassification``."""
    mappings = tuple(f"MODEL_FOR_{_TABLES.get(kind) or _snake(kind)}_MAPPING_NAMES" for kind in kinds)
    return Task(name, mappings, tuple(f"AutoModelFor{kind}" for kind in kinds), outputs, labels)


def _snake(name: str) -> str:
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).lstrip("_")


_TABLES = {
    "CTC": "CTC",
    "CausalLM": "CAUSAL_LM",
    "MaskedLM": "MASKED_LM",
    "Seq2SeqLM": "SEQ_TO_SEQ_CAUSAL_LM",
    "SpeechSeq2Seq": "SPEECH_SEQ_2_SEQ",
}
_PAIRS = ("logits_per_image", "logits_per_text")
_QA = ("start_logits", "end_logits")
_MASKS = ("logits", "class_queries_logits", "masks_queries_logits", "pred_boxes", "pred_masks")
_BASE = (("MODEL_MAPPING_NAMES", "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES"), ("AutoModel", "AutoModelForTextEncoding"))
_ENCODER = _task("seq2seq-encoder", "Seq2SeqLM", "SpeechSeq2Seq", outputs=("last_hidden_state",))

# In the order in which an architecture is looked up: some are in several tables, and the first is what they are for.
TASKS = (
    _task("text-classification", "SequenceClassification", labels="logits"),
    _task("zero-shot-classification", "SequenceClassification", labels="logits"),
    _task("token-classification", "TokenClassification"),
    _task("question-answering", "QuestionAnswering", outputs=_QA),
    Task(_ENCODER.name, _ENCODER.mappings, _ENCODER.autos, _ENCODER.outputs, encoder=True),
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
    _task("zero-shot-image-classification", "ZeroShotImageClassification", outputs=_PAIRS),
    Task("feature-extraction", *_BASE),
    Task("image-feature-extraction", *_BASE),
)  # fmt: skip
_BY_NAME = {task.name: task for task in TASKS}
_ALIASES = {
    "sentiment-analysis": "text-classification",
    "sequence-classification": "text-classification",
    "text-ranking": "text-classification",
    "nli": "zero-shot-classification",
    "ner": "token-classification",
    "sentence-similarity": "feature-extraction",
    "sentence-embeddings": "feature-extraction",
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


def choose_head(wanted: str, config: Config, raw: Mapping[str, object], tag: str = "") -> Head:
    """Choose the task and the class of a checkpoint.

    Args:
        wanted: The spec's task; ``auto`` for what the configuration tells.
        config: The configuration as transformers reads it.
        raw: ``config.json``.
        tag: Task that the model card names, asked when the configuration names no architecture.

    Raises:
        SourceError: The task is not known, not told, or there is no class for it.
    """
    architecture = _architecture(raw)
    own = _own_head(architecture, config)
    if wanted == "auto" and own is not None:
        return own
    if wanted == "auto" and architecture:
        raise _unknown(f"the task of {architecture} is none that repogen knows")
    name = tag if wanted == "auto" else wanted
    task = _BY_NAME.get(_ALIASES.get(name, name))
    if task is None:
        told = f"task {name!r} is none that repogen knows" if name else "config.json names no architecture"
        raise _unknown(told)
    model = _class_for(task, architecture, config)
    if task.name == "feature-extraction" and getattr(config, "is_encoder_decoder", False) and model is not None:
        task = Task(task.name, task.mappings, task.autos, encoder=True)
    if model is None:
        kind = getattr(config, "model_type", "this model")
        able = ", ".join(dict.fromkeys(other.name for other in TASKS if _class_for(other, "", config)))
        raise _unknown(f"transformers {transformers.__version__} has no {name} for {kind}; it has: {able or 'none'}")
    return Head(task, model)


def remote_head(wanted: str, raw: Mapping[str, object]) -> Head:
    """Choose the task and the auto class of a checkpoint with code of its own, which is trusted.

    Raises:
        SourceError: It is registered for no auto class of the task.
    """
    named = raw.get("auto_map")
    offered = list(named) if isinstance(named, dict) else []
    task = _BY_NAME.get(_ALIASES.get(wanted, wanted))
    if wanted != "auto" and task is None:
        raise _unknown(f"task {wanted!r} is none that repogen knows")
    for candidate in TASKS if task is None else (task,):
        for auto in candidate.autos:
            if auto in offered:
                return Head(candidate, getattr(transformers, auto))
    raise _unknown(f"the model's own code offers {', '.join(offered) or 'nothing'}, and no class for the task {wanted}")


def related(config: Config) -> Iterator[Model]:
    """Yield every class that transformers has for a configuration: with the heads of all tasks."""
    seen = set()
    for table in vars(modeling_auto):
        if table.startswith("MODEL") and table.endswith("_MAPPING_NAMES"):
            for name in _classes(table, getattr(config, "model_type", "")):
                model = getattr(transformers, name, None)
                if model is not None and name not in seen:
                    seen.add(name)
                    yield model


def _own_head(architecture: str, config: Config) -> Head | None:
    model = getattr(transformers, architecture, None) if architecture else None
    if model is None:
        return None
    for task in TASKS:
        if any(architecture in names for table in task.mappings for names in _names(table)):
            encoder = task.encoder or (task.name == "feature-extraction" and _has_decoder(architecture, config))
            return Head(Task(task.name, task.mappings, task.autos, task.outputs, task.labels, encoder), model)
    if "For" not in architecture and issubclass(model, transformers.PreTrainedModel):
        return Head(_BY_NAME["feature-extraction"], model)  # such as CLIPTextModelWithProjection
    return None


def _has_decoder(architecture: str, config: Config) -> bool:
    encoders = modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.values()
    return bool(getattr(config, "is_encoder_decoder", False)) and architecture not in encoders


def _class_for(task: Task, architecture: str, config: Config) -> Model:
    """Return the class for a task: the checkpoint's own architecture where it does it; None where there is none."""
    kind = getattr(config, "model_type", "")
    names = [name for table in task.mappings for name in _classes(table, kind)]
    if task.name == "feature-extraction" and getattr(config, "is_encoder_decoder", False):
        names += [name for table in _ENCODER.mappings for name in _classes(table, kind)]
    chosen = architecture if architecture in names else next(iter(names), "")
    return getattr(transformers, chosen, None) if chosen else None


def _names(table: str) -> Iterator[tuple[str, ...]]:
    for names in getattr(modeling_auto, table, {}).values():
        yield (names,) if isinstance(names, str) else tuple(names)


def _classes(table: str, kind: str) -> tuple[str, ...]:
    names = getattr(modeling_auto, table, {}).get(kind, ())
    return (names,) if isinstance(names, str) else tuple(names)


def _architecture(raw: Mapping[str, object]) -> str:
    named = raw.get("architectures")
    first = named[0] if isinstance(named, list) and named else ""
    return first if isinstance(first, str) else ""


def _unknown(what: str) -> SourceError:
    known = ", ".join(_BY_NAME)
    return SourceError(
        what,
        f"source.task is one of: {known}; for any other model write a factory (source.factory) and declare inputs",
        code="source.hf-task",
    )
