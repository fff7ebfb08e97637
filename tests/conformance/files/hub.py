"""Directories written by transformers' save_pretrained, intact and damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from transformers.utils.logging import disable_progress_bar

from tests.conformance.files.bait import bomb
from tests.conformance.models import architectures

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

disable_progress_bar()  # type: ignore[no-untyped-call] # otherwise one per saved model
_WEIGHTS = "model.safetensors"
_REMOTE = """\
from pathlib import Path

(Path({bait!r})).touch()
from transformers import PretrainedConfig, PreTrainedModel


class CustomConfig(PretrainedConfig):
    model_type = "custom"


class CustomModel(PreTrainedModel):
    config_class = CustomConfig
"""


def _new(name: str) -> Any:
    special = {"detr": architectures.detr}
    return special[name]() if name in special else architectures.build(name)


def saved(directory: Path, name: str) -> None:
    """Write one of the architectures in ``models``."""
    _new(name).save_pretrained(directory)


def with_image_size(directory: Path, name: str, size: int) -> None:
    """Write an image model whose image size is in its processor's config, as for CNNs."""
    saved(directory, name)
    processor = {"image_processor_type": "ConvNextImageProcessor", "size": {"height": size, "width": size}}
    (directory / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")


def brain(directory: Path, name: str) -> None:
    """Write a model with bf16 weights."""
    _new(name).to(torch.bfloat16).save_pretrained(directory)


def sharded(directory: Path, name: str) -> None:
    """Write a model in several files with an index."""
    _new(name).save_pretrained(directory, max_shard_size="30KB")


def _edit_weights(directory: Path, edit: dict[str, torch.Tensor], without: str = "") -> None:
    weights = safetensors.torch.load_file(directory / _WEIGHTS)
    remaining = {key: tensor for key, tensor in weights.items() if not without or without not in key}
    safetensors.torch.save_file({**remaining, **edit}, directory / _WEIGHTS, metadata={"format": "pt"})


def without_weight(directory: Path, name: str, part: str) -> None:
    """Write a model without the weights that have ``part`` in their names."""
    saved(directory, name)
    _edit_weights(directory, {}, without=part)


def with_extra_weight(directory: Path, name: str) -> None:
    """Write a model with a weight that its architecture does not have."""
    saved(directory, name)
    _edit_weights(directory, {"adapter.weight": torch.ones(2, 2)})


def _edit_config(directory: Path, **values: object) -> None:
    path = directory / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **values}
    edited = {key: value for key, value in config.items() if value is not None}
    path.write_text(json.dumps(edited), encoding="utf-8")


def without_architecture(directory: Path, name: str) -> None:
    """Write a model whose config does not specify a task."""
    saved(directory, name)
    _edit_config(directory, architectures=None)


def without_padding(directory: Path, name: str) -> None:
    """Write a decoder with a classification head, without pad_token_id in its config."""
    saved(directory, name)
    _edit_config(directory, pad_token_id=None)


def without_config(directory: Path, name: str) -> None:
    """Write only the weights."""
    saved(directory, name)
    (directory / "config.json").unlink()


def remote_code(directory: Path, name: str) -> None:
    """Write a model with its own Python code, which creates ``bait`` if it runs."""
    saved(directory, name)
    (directory / "modeling_custom.py").write_text(_REMOTE.format(bait=str(directory / "bait")), encoding="utf-8")
    auto_map = {"AutoConfig": "modeling_custom.CustomConfig", "AutoModel": "modeling_custom.CustomModel"}
    auto_map |= {"AutoModelForSequenceClassification": "modeling_custom.CustomModel"}
    _edit_config(directory, model_type="custom", architectures=["CustomModel"], auto_map=auto_map)


def pickled_bomb(directory: Path, name: str) -> None:
    """Write a model whose weights are a pickle that creates ``bait`` if it is loaded."""
    saved(directory, name)
    (directory / _WEIGHTS).unlink()
    bomb(directory, "pytorch_model.bin")


def nothing(directory: Path) -> None:
    """Create an empty directory."""
    directory.mkdir(exist_ok=True)


def zero_shot(directory: Path, name: str) -> None:
    """Write a sequence classifier whose labels are those of natural language inference."""
    saved(directory, name)
    labels = {"0": "contradiction", "1": "neutral", "2": "entailment"}
    _edit_config(directory, id2label=labels, label2id={label: int(number) for number, label in labels.items()})


def model(name: str) -> nn.Module:
    """Return one of the architectures in ``models``."""
    module: nn.Module = _new(name)
    return module
