"""A directory that ``save_pretrained`` wrote, for a spec."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.scaffold.description import Found, model_name

if TYPE_CHECKING:
    from pathlib import Path

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def describe_directory(path: Path, shown: str) -> Found:
    """Read a directory's ``config.json``; nothing of transformers is needed.

    Args:
        path: The directory.
        shown: The same, as seen from the spec.

    Raises:
        SpecError: There is no such file in it, or it is no model's.
    """
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(
            f"{path} has no config.json, so it is no Hugging Face model",
            "name the directory that save_pretrained wrote, or a file in this one",
            code="init.from",
        ) from None
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{path / 'config.json'} can't be read: {error}", "download it again", code="init.from"
        ) from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise SpecError(
            f"{path / 'config.json'} names no model_type", "is it a model of transformers?", code="init.from"
        )
    named = ", ".join(str(name) for name in config.get("architectures") or ()) or "no architecture"
    weights = sorted(file.name for pattern in _WEIGHTS for file in path.glob(pattern))
    comments = [
        f"config.json names {config['model_type']}, {named}.",
        f"Weights: {', '.join(weights[:3])}" if weights else "CHECK: there are no weights in the directory.",
        "The task, and with it inputs, outputs and dynamic dims, is read from the config; or write task: …",
    ]
    if config.get("auto_map"):
        comments.append(
            "CHECK: it needs code of its own. If you trust that code, add trust_remote_code: true to source."
        )
    missing = "" if weights else f"put the weights into {path}"
    return Found(model_name(path.resolve().name), {"kind": "huggingface", "model": shown}, tuple(comments), (), missing)
