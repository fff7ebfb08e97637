"""Outputs of a task and their class labels; losses, caches and intermediate states are served only when requested."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from repogen.source.common.callables import RAISED
from repogen.source.torch.flat import FlatModule

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Signature
    from repogen.source.common.inputs import Inputs
    from repogen.source.huggingface.configuration import Config
    from repogen.source.huggingface.tasks import Task
    from repogen.spec.models import ModelSpec

_BY_PRODUCTS = (
    "loss", "past_key_values", "hidden_states", "attentions", "encoder_", "decoder_", "cross_", "auxiliary_", "aux_",
    "intermediate_", "init_", "enc_", "mems", "cache", "router_", "text_model_", "vision_model_",
)  # fmt: skip
_DEFAULT_LABEL = re.compile(r"LABEL_\d+")
_CLASSIFIER_RANK = 2


def choose_outputs(module: torch.nn.Module, inputs: Inputs, task: Task, model: ModelSpec) -> tuple[str, ...]:
    """Return the names of the outputs to serve: those in the spec, or else those of the task."""
    if model.output_names:
        return model.output_names
    sample = inputs.examples({name: dim.example for name, dim in inputs.dims.items()}, model.parity.seed)
    tensors = [torch.from_numpy(sample[spec.name]) for spec in inputs.specs]
    flat = FlatModule(module, inputs.call)
    try:
        with torch.no_grad():
            names = [name for name, leaf in flat.leaves(*tensors) if isinstance(leaf, torch.Tensor)]
    except RAISED:
        return ()  # the probe runs the model next and reports the error
    task_outputs = tuple(name for name in task.outputs if name in names)
    return task_outputs or tuple(name for name in dict.fromkeys(names) if not name.startswith(_BY_PRODUCTS))


def class_labels(
    config: Config, task: Task, signature: Signature
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return class labels by output, and notes.

    Only an output ``[batch, labels]`` gets labels: Triton's classification extension ranks all values of a row, so the
    labels of a token classifier would be wrong. transformers' default labels (``LABEL_0``) are ignored.
    """
    output = next((spec for spec in signature.outputs if spec.name == task.labels), None)
    id2label = getattr(config, "id2label", None)
    if output is None or len(output.shape) != _CLASSIFIER_RANK or not isinstance(id2label, dict):
        return {}, ()
    labels = {int(key): " ".join(str(label).split()) for key, label in id2label.items()}
    if not labels or all(_DEFAULT_LABEL.fullmatch(label) for label in labels.values()):
        return {}, ()
    if sorted(labels) != list(range(len(labels))) or len(labels) != output.shape[1]:
        note = f"id2label was ignored: it has {len(labels)} classes, but output {output.name} has {output.shape[1]}"
        return {}, (note,)
    return {output.name: tuple(labels[n] for n in range(len(labels)))}, ()
