"""The names of a classifier's classes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Signature
    from repogen.source.huggingface.tasks import Task
    from repogen.source.huggingface.untyped import Config

_DEFAULT = re.compile(r"LABEL_\d+")
_RANK = 2


def labels_of(config: Config, task: Task, signature: Signature) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return labels by output, and what a person should know.

    Only an output ``[batch, labels]`` has them: Triton's classification extension counts over all of a row, so that
    it would name the tokens of a token classifier wrongly.

    Args:
        config: Its ``id2label``; transformers' stand-ins ``LABEL_0`` and so on name nothing.
        task: Says which output they are of.
        signature: Of the model.
    """
    output = next((spec for spec in signature.outputs if spec.name == task.labels), None)
    names = getattr(config, "id2label", None)
    if output is None or len(output.shape) != _RANK or not isinstance(names, dict):
        return {}, ()
    found = {int(key): " ".join(str(label).split()) for key, label in names.items()}
    if not found or all(_DEFAULT.fullmatch(label) for label in found.values()):
        return {}, ()
    if sorted(found) != list(range(len(found))) or len(found) != output.shape[1]:
        return {}, (f"id2label names {len(found)} classes, but {output.name} has {output.shape[1]}: it was left out",)
    return {output.name: tuple(found[n] for n in range(len(found)))}, ()
