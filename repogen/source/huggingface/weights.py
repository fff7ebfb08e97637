"""Weights into a class of transformers, strictly: transformers itself draws missing ones at random, and warns."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from transformers.utils import logging

from repogen.errors import SourceError
from repogen.source.common.callables import RAISED, user_error
from repogen.source.huggingface.tasks import related
from repogen.source.torch.weights import read_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from repogen.source.huggingface.files import Checkpoint
    from repogen.source.huggingface.tasks import Head
    from repogen.source.huggingface.untyped import Config, Model

State = dict[str, torch.Tensor]
_SHOWN = 5
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "float64": torch.float64}


def load_model(head: Head, checkpoint: Checkpoint, config: Config, dtype: str | None) -> tuple[Model, tuple[str, ...]]:
    """Build a class of transformers and fill it with a checkpoint's weights.

    Args:
        head: The class.
        checkpoint: Where the weights lie.
        config: As ``configuration.read_config`` returned it.
        dtype: What the spec casts floating weights to.

    Returns:
        The model, and what a person should know.

    Raises:
        SourceError: Weights are missing, of another shape or of no use, or their files are not readable.
    """
    _quiet()
    state: State = {}
    for path in checkpoint.weights:
        state.update(read_state(path))
    want = _precision(dtype, checkpoint.config, state)
    model, info = _filled(head.model, config, state, want, checkpoint)
    notes = _casts(state, want)
    if _only_pooler(info["missing_keys"], head.model) and not head.task.labels:
        model, info = _filled(head.model, config, state, want, checkpoint, add_pooling_layer=False)
        notes = (*notes, "the checkpoint has no weights of the pooler: it was left out")
    spare = _spare(info["unexpected_keys"], config)
    _refuse(info, spare, checkpoint.name)
    if spare:
        notes = (*notes, f"weights of another head were left out: {_cut(spare)}")
    return model, notes


def _quiet() -> None:
    """Keep transformers from printing tables of what is told here."""
    silent: Any = logging
    silent.set_verbosity_error()
    silent.disable_progress_bar()


def _filled(
    model: Model,
    config: Config,
    state: State,
    dtype: torch.dtype,
    checkpoint: Checkpoint,
    **more: bool,
) -> tuple[Model, dict[str, Any]]:
    """Have transformers build and fill a model; it is given tensors, and so never reads the directory."""
    try:
        loaded, info = model.from_pretrained(
            None,
            config=config,
            state_dict=dict(state),
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told below, by name
            local_files_only=True,
            **more,
        )
    except RAISED as error:
        raise user_error(error, f"transformers can't build {model.__name__}", checkpoint.directory) from error
    return loaded, info


def _precision(dtype: str | None, config: Mapping[str, object], state: State) -> torch.dtype:
    """Return what transformers loads weights as, the configuration's dtype or their own; float32 for bfloat16."""
    if dtype is not None:
        return _DTYPES[dtype]
    named = config.get("dtype") or config.get("torch_dtype")
    if not isinstance(named, str):
        kinds = (tensor.dtype for tensor in state.values() if tensor.is_floating_point())
        named = _said(next(kinds, torch.float32))
    return _DTYPES.get(named, torch.float32)


def _casts(state: State, want: torch.dtype) -> tuple[str, ...]:
    kinds = Counter(tensor.dtype for tensor in state.values() if tensor.is_floating_point())
    return tuple(
        f"{count} tensors were cast from {_said(kind)} to {_said(want)}"
        + (": Triton's ONNX Runtime backend does not serve bfloat16" if kind == torch.bfloat16 else "")
        for kind, count in kinds.items()
        if kind != want
    )


def _said(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _only_pooler(missing: Iterable[str], model: Model) -> bool:
    """Whether nothing but a pooler is missing, and the class can do without: masked language models have none."""
    names = list(missing)
    return (
        bool(names)
        and all("pooler" in name.split(".") for name in names)
        and "add_pooling_layer" in inspect.signature(model.__init__).parameters
    )


def _spare(unexpected: Iterable[str], config: Config) -> list[str]:
    """Return those of the unexpected weights that belong to a head of the same architecture for another task.

    The published BERT holds the head of its second training task; a model with a layer too many in its file is
    another model, and no class for this configuration has that layer.
    """
    left, spare = set(unexpected), set[str]()
    for model in related(config) if left else ():
        names = _names_of(model, config)
        spare |= {key for key in left if key in names}
        left -= spare
        if not left:
            break
    return sorted(spare)


def _names_of(model: Model, config: Config) -> frozenset[str]:
    """Return the names of a class's weights, with and without the prefix of its base model."""
    try:
        with torch.device("meta"):
            names = list(model(config).state_dict())
    except RAISED:  # one that needs more than this configuration
        return frozenset()
    prefix = f"{model.base_model_prefix}."
    return frozenset((*names, *(f"{prefix}{name}" for name in names), *(name.removeprefix(prefix) for name in names)))


def _refuse(info: dict[str, Any], spare: list[str], name: str) -> None:
    problems = {
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(set(info["unexpected_keys"]) - set(spare)),
        "other shape": [
            f"{key}: file {list(have)}, model {list(want)}" for key, have, want in sorted(info["mismatched_keys"])
        ],
        "not convertible": [" ".join(str(text).split()) for text in info.get("error_msgs", ())],
    }
    if not any(problems.values()):
        return
    listed = "; ".join(f"{what}: {_cut(keys)}" for what, keys in problems.items() if keys)
    raise SourceError(
        f"the weights of {name} are not those of the model; {listed}",
        "transformers would fill what is missing with random numbers: choose the task that was trained (source.task), "
        "or train and save this head",
        code="source.hf-weights",
        where=name,
    )


def _cut(keys: list[str]) -> str:
    return f"{', '.join(keys[:_SHOWN])}{f' and {len(keys) - _SHOWN} more' if len(keys) > _SHOWN else ''}"
