"""The description of an existing model, and how it becomes lines of a spec."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_MAX_NAME_LENGTH = 128
_YAML_KEYWORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class Hints:
    """What the user knows about the model of ``--from``.

    Attributes:
        weights: File of weights; None if the callable loads them.
        examples: File with inputs, or ``file.py:callable``; None to look for a function ``examples``.
        name: Name in Triton; None to derive it.
    """

    weights: str | None = None
    examples: str | None = None
    name: str | None = None


NO_HINTS = Hints()


@dataclass(frozen=True)
class CopiedFile:
    """A file to copy into the spec's directory.

    Attributes:
        path: The file.
        directory: The directory that it must not lead out of.
        root: That directory without symlinks, before it was read: a link that replaces it is not followed.
    """

    path: Path
    directory: Path
    root: Path


@dataclass(frozen=True)
class ModelDescription:
    """What can be determined about a model without running it.

    Attributes:
        name: Name of the model in Triton.
        source: Keys and values of ``source:``.
        comments: Facts and remarks, one line each.
        keys: Further lines of the model's block in the spec; some are comments.
        missing: What to add before the spec builds; empty when nothing is missing.
        copies: Files to copy into the spec's directory, by their path there: only files in it can be published.
    """

    name: str
    source: dict[str, object]
    comments: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    missing: str = ""
    copies: Mapping[str, CopiedFile] = field(default_factory=dict)


@dataclass(frozen=True)
class SpecDescription:
    """What `repogen init --from` writes.

    Attributes:
        models: The models.
        repository: The model repository, relative to the spec.
        omitted: Models of an existing repository that a spec cannot describe, with the reason.
        files: Further files, by name.
        adopt: Names of models that `repogen build` has to take over.
    """

    models: tuple[ModelDescription, ...]
    repository: str = "model_repository"
    omitted: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    adopt: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """What to add before the spec builds; empty when nothing is missing."""
        return "; ".join(dict.fromkeys(model.missing for model in self.models if model.missing))


def model_name(text: str) -> str:
    """Return a valid Triton model name derived from a file name.

    >>> model_name("ResNet 18 (v2)")
    'ResNet_18_v2'
    """
    name = re.sub(r"[^A-Za-z0-9-]+", "_", text).strip("_-")[:_MAX_NAME_LENGTH]
    return name or "model"


def input_placeholders(names: Iterable[str]) -> tuple[str, ...]:
    """Return commented lines that declare inputs, to be completed by the user."""
    return (
        "# Fill in forward's inputs with their real dtypes and shapes; names in a shape are dynamic dims:",
        "# inputs:",
        *(f"#   {name}: {{dtype: DTYPE, shape: [batch, SIZE]}}" for name in names),
        "# dims: {batch: {min: 1, max: 32}}",
        "# Integer inputs also need a range: {dtype: int64, shape: [batch, sequence], range: [0, 30521]}",
    )


def flow(value: object) -> str:
    r"""Return a value as YAML on one line: JSON with unquoted strings where YAML allows them.

    >>> flow({"kind": "onnx", "shape": ["batch", 4], "path": "my model.onnx"})
    '{kind: onnx, shape: [batch, 4], path: "my model.onnx"}'
    >>> print(flow(chr(0x85)))  # YAML would read it as a line break
    "\u0085"
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{flow(key)}: {flow(child)}' for key, child in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(flow(child) for child in value)}]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", value):
        return json.dumps(value) if value.lower() in _YAML_KEYWORDS else value
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1]
        for character in json.dumps(value, ensure_ascii=False)
    )


def one_line(text: str) -> str:
    """Replace unprintable characters, so that text from a file cannot end the comment that contains it."""
    return "".join(character if character.isprintable() else "?" for character in text)


def shape_text(dims: Iterable[object]) -> str:
    """Return a shape as it is written in a spec."""
    return f"[{', '.join(str(dim) for dim in dims)}]"
