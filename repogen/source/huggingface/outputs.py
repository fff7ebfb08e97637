"""Which of a model's answers are served: its task's, never losses, caches and intermediate states unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from repogen.source.common.callables import RAISED
from repogen.source.torch.flat import FlatModule

if TYPE_CHECKING:
    from repogen.source.common.inputs import Inputs
    from repogen.source.huggingface.tasks import Task
    from repogen.spec.models import ModelSpec

_BY_PRODUCTS = (
    "loss", "past_key_values", "hidden_states", "attentions", "encoder_", "decoder_", "cross_", "auxiliary_", "aux_",
    "intermediate_", "init_", "enc_", "mems", "cache", "router_", "text_model_", "vision_model_",
)  # fmt: skip


def choose(module: torch.nn.Module, inputs: Inputs, task: Task, model: ModelSpec) -> tuple[str, ...]:
    """Return the names of the outputs to serve; the spec's own where it names some.

    Args:
        module: Prepared.
        inputs: Of its forward.
        task: Names the keys that matter.
        model: The spec entry.
    """
    if model.output_names:
        return model.output_names
    sample = inputs.examples({name: dim.example for name, dim in inputs.dims.items()}, model.parity.seed)
    tensors = [torch.from_numpy(sample[spec.name]) for spec in inputs.specs]
    flat = FlatModule(module, inputs.call)
    try:
        with torch.no_grad():
            names = [name for name, leaf in flat.leaves(*tensors) if isinstance(leaf, torch.Tensor)]
    except RAISED:
        return ()  # source.probe runs it next, and explains
    wanted = tuple(name for name in task.outputs if name in names)
    return wanted or tuple(name for name in dict.fromkeys(names) if not name.startswith(_BY_PRODUCTS))
