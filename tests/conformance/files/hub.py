"""Directories as transformers' save_pretrained leaves them, whole and damaged."""

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

disable_progress_bar()  # type: ignore[no-untyped-call] # one for each model that is written
_WEIGHTS = "model.safetensors"
_REMOTE = """\
from pathlib import Path

(Path({bait!r})).touch()
from transformers import PretrainedConfig, PreTrainedModel


class ZooConfig(PretrainedConfig):
    model_type = "zoo"


class ZooModel(PreTrainedModel):
    config_class = ZooConfig
"""


def _made(name: str) -> Any:
    special = {"detr": architectures.detr}
    return special[name]() if name in special else architectures.build(name)


def saved(directory: Path, name: str) -> None:
    """Write an architecture of the table."""
    _made(name).save_pretrained(directory)


def with_image_size(directory: Path, name: str, size: int) -> None:
    """Write an image model whose size stands in its processor's config, as that of a CNN does."""
    saved(directory, name)
    processor = {"image_processor_type": "ConvNextImageProcessor", "size": {"height": size, "width": size}}
    (directory / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")


def brain(directory: Path, name: str) -> None:
    """Write a model with bf16 weights."""
    _made(name).to(torch.bfloat16).save_pretrained(directory)


def sharded(directory: Path, name: str) -> None:
    """Write a model in several files with an index."""
    _made(name).save_pretrained(directory, max_shard_size="30KB")


def _edit_weights(directory: Path, edit: dict[str, torch.Tensor], without: str = "") -> None:
    weights = safetensors.torch.load_file(directory / _WEIGHTS)
    kept = {key: tensor for key, tensor in weights.items() if not without or without not in key}
    safetensors.torch.save_file({**kept, **edit}, directory / _WEIGHTS, metadata={"format": "pt"})


def without_weight(directory: Path, name: str, part: str) -> None:
    """Write a model that lost the weights with ``part`` in their names: transformers would draw them anew."""
    saved(directory, name)
    _edit_weights(directory, {}, without=part)


def with_strange_weight(directory: Path, name: str) -> None:
    """Write a model with a weight that its architecture does not have."""
    saved(directory, name)
    _edit_weights(directory, {"adapter.weight": torch.ones(2, 2)})


def _edit_config(directory: Path, **values: object) -> None:
    path = directory / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **values}
    kept = {key: value for key, value in config.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")


def without_architecture(directory: Path, name: str) -> None:
    """Write a model whose config does not say what it is for."""
    saved(directory, name)
    _edit_config(directory, architectures=None)


def without_padding(directory: Path, name: str) -> None:
    """Write a decoder that classifies, and whose config does not say which token pads."""
    saved(directory, name)
    _edit_config(directory, pad_token_id=None)


def without_config(directory: Path, name: str) -> None:
    """Write the weights alone."""
    saved(directory, name)
    (directory / "config.json").unlink()


def remote_code(directory: Path, name: str) -> None:
    """Write a model that brings Python code along, which leaves a trace if it runs."""
    saved(directory, name)
    (directory / "modeling_zoo.py").write_text(_REMOTE.format(bait=str(directory / "bait")), encoding="utf-8")
    auto_map = {"AutoConfig": "modeling_zoo.ZooConfig", "AutoModel": "modeling_zoo.ZooModel"}
    auto_map |= {"AutoModelForSequenceClassification": "modeling_zoo.ZooModel"}
    _edit_config(directory, model_type="zoo", architectures=["ZooModel"], auto_map=auto_map)


def pickled_bomb(directory: Path, name: str) -> None:
    """Write a model whose weights are a pickle that leaves a trace if it is loaded."""
    saved(directory, name)
    (directory / _WEIGHTS).unlink()
    bomb(directory, "pytorch_model.bin")


def nothing(directory: Path) -> None:
    """Leave an empty directory."""
    directory.mkdir(exist_ok=True)


def zero_shot(directory: Path, name: str) -> None:
    """Write a sequence classifier whose labels are those of natural language inference."""
    saved(directory, name)
    labels = {"0": "contradiction", "1": "neutral", "2": "entailment"}
    _edit_config(directory, id2label=labels, label2id={label: int(number) for number, label in labels.items()})


def model(name: str) -> nn.Module:
    """Return an architecture of the table."""
    made: nn.Module = _made(name)
    return made
