"""Loads weights into a transformers class strictly; transformers itself initializes missing weights randomly."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from transformers.utils import logging

from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.huggingface.tasks import related_models
from repogen.source.torch.weights import read_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from repogen.source.huggingface.checkpoint import Checkpoint, ConfigFile
    from repogen.source.huggingface.configuration import Config
    from repogen.source.huggingface.tasks import Head, Model

State = dict[str, torch.Tensor]
_MAX_LISTED = 5
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "float64": torch.float64}


def load_model(head: Head, checkpoint: Checkpoint, config: Config, dtype: str | None) -> tuple[Model, tuple[str, ...]]:
    """Build a transformers class with a checkpoint's weights, cast to the dtype of the spec; return it and notes.

    Raises:
        SourceError: Weights are missing, unexpected or of another shape, or a file cannot be read.
    """
    _silence_transformers()
    state: State = {}
    for path in checkpoint.weights:
        state.update(read_state(path))
    target = _target_dtype(dtype, checkpoint.config, state)
    settings = {"config": config, "state_dict": state, "dtype": target}
    model, info = _build(head.model, checkpoint, settings)
    notes = _cast_notes(state, target)
    if _only_pooler(info["missing_keys"], head.model) and not head.task.labels:
        model, info = _build(head.model, checkpoint, {**settings, "add_pooling_layer": False})
        notes = (*notes, "the pooler was left out: the checkpoint has no weights for it")
    other_heads = _weights_of_other_heads(info["unexpected_keys"], config)
    _check_loading(info, other_heads, checkpoint.name)
    if other_heads:
        notes = (*notes, f"weights of another head were left out: {_list_keys(other_heads)}")
    return model, notes


def _silence_transformers() -> None:
    """Disable transformers' own loading report and progress bars."""
    transformers_logging: Any = logging
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def _build(model: Model, checkpoint: Checkpoint, settings: dict[str, Any]) -> tuple[Model, dict[str, Any]]:
    """Build a model from tensors, so that transformers never reads the directory; return it and the loading report."""
    try:
        network, info = model.from_pretrained(
            None,
            **{**settings, "state_dict": dict(settings["state_dict"])},
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported by _check_loading
            local_files_only=True,
        )
    except RAISED as error:
        raise user_error(error, f"transformers cannot build {model.__name__}", checkpoint.directory) from error
    return network, info


def _target_dtype(dtype: str | None, config: ConfigFile, state: State) -> torch.dtype:
    """Return the dtype of the spec, of config.json, or of the weights; float32 instead of bfloat16."""
    if dtype is not None:
        return _DTYPES[dtype]
    name = config.dtype or config.torch_dtype
    if not isinstance(name, str):
        floating = (tensor.dtype for tensor in state.values() if tensor.is_floating_point())
        name = _dtype_name(next(floating, torch.float32))
    return _DTYPES.get(name, torch.float32)


def _cast_notes(state: State, target: torch.dtype) -> tuple[str, ...]:
    counts = Counter(tensor.dtype for tensor in state.values() if tensor.is_floating_point())
    return tuple(
        f"cast {count} tensor{'' if count == 1 else 's'} from {_dtype_name(dtype)} to {_dtype_name(target)}"
        + (": ONNX Runtime has few bfloat16 operators on a CPU" if dtype == torch.bfloat16 else "")
        for dtype, count in counts.items()
        if dtype != target
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _only_pooler(missing_keys: Iterable[str], model: Model) -> bool:
    """Whether only pooler weights are missing and the class can omit the pooler, as masked language models do."""
    names = list(missing_keys)
    return (
        bool(names)
        and all("pooler" in name.split(".") for name in names)
        and "add_pooling_layer" in inspect.signature(model.__init__).parameters
    )


def _weights_of_other_heads(unexpected: Iterable[str], config: Config) -> list[str]:
    """Return the unexpected weights that belong to the same architecture's head for another task.

    Published BERT checkpoints contain the head of a second pretraining task. An extra layer, however, belongs to no
    class of this configuration: the weights are then those of another model.
    """
    remaining, other_heads = set(unexpected), set[str]()
    for model in related_models(config) if remaining else ():
        names = _weight_names(model, config)
        other_heads |= {key for key in remaining if key in names}
        remaining -= other_heads
        if not remaining:
            break
    return sorted(other_heads)


def _weight_names(model: Model, config: Config) -> frozenset[str]:
    """Return the names of a class's weights, with and without the prefix of its base model."""
    try:
        with torch.device("meta"):
            names = list(model(config).state_dict())
    except RAISED:  # the class does not support this configuration
        return frozenset()
    prefix = f"{model.base_model_prefix}."
    return frozenset((*names, *(f"{prefix}{name}" for name in names), *(name.removeprefix(prefix) for name in names)))


def _check_loading(info: dict[str, Any], other_heads: list[str], name: str) -> None:
    problems = {
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(set(info["unexpected_keys"]) - set(other_heads)),
        "other shape": [
            f"{key}: file {list(actual)}, model {list(expected)}"
            for key, actual, expected in sorted(info["mismatched_keys"])
        ],
        "not convertible": [" ".join(str(text).split()) for text in info.get("error_msgs", ())],
    }
    if not any(problems.values()):
        return
    summary = "; ".join(f"{problem}: {_list_keys(keys)}" for problem, keys in problems.items() if keys)
    raise SourceError(
        f"the weights of {name} do not match the model; {summary}",
        "transformers would initialize missing weights randomly: choose the task that was trained (source.task), or "
        "train and save this head",
        code="source.hf-weights",
        where=name,
    )


def _list_keys(keys: list[str]) -> str:
    hidden_count = len(keys) - _MAX_LISTED
    return f"{', '.join(keys[:_MAX_LISTED])}{f' and {hidden_count} more' if hidden_count > 0 else ''}"
