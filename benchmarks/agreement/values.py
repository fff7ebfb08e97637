"""What a base, a variant of it and Triton's verdict are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Group = Literal["core", "backend", "layout", "syntax"]
"""Who judges: the server's core, the onnxruntime backend (imitated here), the files' layout, the config's parser."""
Outcome = Literal["accept", "refuse", "crash", "hang", "wrong"]
"""``wrong``: the model loads, and every answer is wrong or an error."""
Said: TypeAlias = Literal["nothing", "warning", "error"]
"""The worst that `repogen check` says."""


@dataclass(frozen=True)
class Model:
    """One model of a repository.

    Attributes:
        name: Its directory.
        config: Text of its config.pbtxt.
        graph: Its model file; empty where it has none.
        versions: Its version directories.
        file: Name of the model file.
        extra: More files, by path in the model's directory.
    """

    name: str
    config: str
    graph: bytes = b""
    versions: tuple[str, ...] = ("1",)
    file: str = "model.onnx"
    extra: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, repository: Path) -> None:
        """Write it into ``repository``."""
        home = repository / self.name
        for version in self.versions:
            (home / version).mkdir(parents=True)
            if self.graph:
                (home / version / self.file).write_bytes(self.graph)
        for path, content in self.extra.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(content)
        (home / "config.pbtxt").write_text(self.config, encoding="utf-8")


@dataclass(frozen=True)
class Base:
    """A repository that loads; its first model is the one that is loaded, and changed."""

    models: tuple[Model, ...]

    @property
    def name(self) -> str:
        """Name of the first model, and of the base."""
        return self.models[0].name

    @property
    def renamable(self) -> bool:
        """Whether its model may stand under another directory's name."""
        return len(self.models) == 1 and not self.models[0].config.startswith("name:")

    def write(self, repository: Path) -> None:
        """Write it into ``repository``, which is new."""
        repository.mkdir(parents=True)
        for model in self.models:
            model.write(repository)


@dataclass(frozen=True)
class Variant:
    """A base with one thing changed.

    Attributes:
        name: ``base/what``; unique and stable.
        base: What it starts from.
        group: Who judges it.
        change: Makes the change in the repository.
        whole: Whether Triton must be started on the whole repository: the change lies at its root.
    """

    name: str
    base: Base
    group: Group
    change: Callable[[Path], None]
    whole: bool = False

    @property
    def folder(self) -> str:
        """Name of the directory that its repository is kept in."""
        return self.name.replace("/", "__")

    def write(self, repository: Path) -> None:
        """Write its repository, which is new."""
        self.base.write(repository)
        self.change(repository)


@dataclass(frozen=True)
class Truth:
    """What Triton did with a variant.

    Attributes:
        name: The variant's.
        base: The base's.
        group: Who judged it.
        outcome: What came of it.
        message: The server's words; empty for an accepted one.
    """

    name: str
    base: str
    group: Group
    outcome: Outcome
    message: str


# What this machine lacks, and a stock container on a machine with GPUs has.
_MACHINE = re.compile(
    r"no GPUs are available|unsupported gpu id|kind KIND_CPU but specifies one or more GPUs"
    r"|backend library (for backend '(tensorrt|pytorch)'|'libtriton_onnxruntime.so')|libtritonrepoagent_checksum"
    r"|Execution Accelerator 'openvino'|Failed to get the canonical path"
)
_KNOWN = {
    "warmup/inputs_extra": "loads as often as it does not: an unknown input of a warmup may bring the server down",
    "state/input_of_model": "the lenient backend does not ask for the graph's own state input",
    "batch/bool/hex": "`true` written as 0x0, which protobuf's Python does not read",
    "batch/operations/absent": "repogen does not load the model: NVIDIA's backend would run the library",
    "root/model_dollar": "repogen does not load the model: a Python backend would pass its name to a shell",
}


_REJECTED_BY_SOURCE = "src/onnxruntime.cc of NVIDIA's backend, LoadModel; no GPU here"
# Measured on NVIDIA's stock C++ backend of 24.10, which the embedded server does not have, or read in its source.
_STOCK: dict[str, tuple[Outcome, str]] = {
    "batch/runtime/python": ("refuse", "unable to find Python backend based backend library 'model.py'"),
    "platform/runtime_library": ("accept", ""),
    "batch/runtime/library": ("accept", ""),
    **dict.fromkeys(
        (
            "ragged/target/absent",
            "ragged/target/empty",
            "ragged/target/input",
            "ragged/target/output",
            "ragged/target/two",
        ),
        ("wrong", "the backend counts batch inputs and does not compare their names: every inference fails (source)"),
    ),
    "scatter/first_value": ("wrong", "in a batch, a response has another row's value"),
    "growable/as_it_is": ("wrong", "Missing Input: every inference fails"),
    "accelerated/precision_unknown": ("refuse", _REJECTED_BY_SOURCE),
    "accelerated/parameter_misspelled": ("refuse", _REJECTED_BY_SOURCE),
    "accelerated/dla_core_word": ("refuse", _REJECTED_BY_SOURCE),
    "accelerated/cache_word": ("refuse", _REJECTED_BY_SOURCE),
    "accelerated/cuda_word": ("refuse", _REJECTED_BY_SOURCE),
    "accelerated/gpu_io": ("refuse", _REJECTED_BY_SOURCE),
    **dict.fromkeys(
        ("accelerated/as_it_is", "accelerated/cache_on", "accelerated/cuda", "accelerated/int8"), ("accept", "")
    ),
}


def on_stock_backend(truth: Truth) -> Truth:
    """Return a truth as it is on NVIDIA's backend, where that is known to differ from the embedded server's."""
    if truth.name not in _STOCK:
        return truth
    outcome, message = _STOCK[truth.name]
    return replace(truth, outcome=outcome, message=message)


def excuse(truth: Truth) -> str:
    """Return why a verdict may differ from a truth; empty where it may not."""
    if truth.outcome != "accept" and _MACHINE.search(truth.message):
        return "the machine of the benchmark has no such GPU, backend or agent"
    return _KNOWN.get(truth.name, "")
