"""What ``repogen init --from`` finds out about a model, and how it becomes lines of a spec."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_LONGEST = 128


@dataclass(frozen=True)
class Found:
    """A model as it can be known without running it.

    Attributes:
        name: For Triton.
        source: Keys and values of ``source:``.
        comments: What was found and what to check, a line each.
        keys: Further lines of the model's block, some of them comments.
        missing: What a person has to fill in before it builds; empty when nothing.
    """

    name: str
    source: dict[str, object]
    comments: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    missing: str = ""


def model_name(text: str) -> str:
    """Return a name that Triton takes, made of a file's.

    >>> model_name("ResNet 18 (v2)")
    'ResNet_18_v2'
    """
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", text).strip("_-")[:_LONGEST]
    return plain or "model"


def flow(value: object) -> str:
    """Return a value as YAML on one line: JSON, with bare words where YAML takes them for strings.

    >>> flow({"kind": "onnx", "shape": ["batch", 4], "path": "my model.onnx"})
    '{kind: onnx, shape: [batch, 4], path: "my model.onnx"}'
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{flow(key)}: {flow(child)}' for key, child in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(flow(child) for child in value)}]"
    if isinstance(value, str) and _is_bare(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_bare(text: str) -> bool:
    word = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text)
    return word is not None and text.lower() not in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def one_line(text: str) -> str:
    """Return text that stays in its comment, whatever a file calls its tensors."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shape_text(dims: list[int | str]) -> str:
    """Return a shape as people write it."""
    return f"[{', '.join(str(dim) for dim in dims)}]"
