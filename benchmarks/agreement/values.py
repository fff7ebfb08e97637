"""Base repositories, their variants, and the results of loading them on Triton."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Group = Literal["core", "backend", "layout", "syntax"]
"""What decides: the core of the server, the onnxruntime backend, the layout of files, or the parser of the config."""
Outcome = Literal["accept", "reject", "crash", "hang", "wrong"]
"""``wrong``: the model loads, but responses are wrong or errors."""
Severity: TypeAlias = Literal["nothing", "warning", "error"]
"""The highest severity among the findings of `repogen check`."""


@dataclass(frozen=True)
class Model:
    """One model of a repository.

    Attributes:
        name: Its directory.
        config: Text of its config.pbtxt.
        graph: Content of its model file; empty if it has none.
        versions: Its version directories.
        file: Name of the model file.
        extra: Content of other files, by path in the model's directory.
    """

    name: str
    config: str
    graph: bytes = b""
    versions: tuple[str, ...] = ("1",)
    file: str = "model.onnx"
    extra: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, repository: Path) -> None:
        """Write the model into ``repository``."""
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
    """A repository that loads; its first model is the one that variants change."""

    models: tuple[Model, ...]

    @property
    def name(self) -> str:
        """Name of the first model, and of the base."""
        return self.models[0].name

    @property
    def renamable(self) -> bool:
        """Whether its model can be loaded under the name of a different directory."""
        return len(self.models) == 1 and not self.models[0].config.startswith("name:")

    def write(self, repository: Path) -> None:
        """Write all models into ``repository``, which does not exist yet."""
        repository.mkdir(parents=True)
        for model in self.models:
            model.write(repository)


@dataclass(frozen=True)
class Variant:
    """A base with one thing changed.

    Attributes:
        name: ``base/change``; unique and stable.
        base: The repository that is changed.
        group: What decides whether it loads.
        change: Changes the repository.
        whole: Whether Triton must be started on the whole repository, because the change is at its root.
    """

    name: str
    base: Base
    group: Group
    change: Callable[[Path], None]
    whole: bool = False

    @property
    def folder(self) -> str:
        """Name of the directory of its repository."""
        return self.name.replace("/", "__")

    def write(self, repository: Path) -> None:
        """Write its repository, which does not exist yet."""
        self.base.write(repository)
        self.change(repository)


@dataclass(frozen=True)
class ServerResult:
    """The result of loading a variant on Triton.

    Attributes:
        name: Name of the variant.
        base: Name of its base.
        group: What decided.
        outcome: Whether Triton loaded it.
        message: The error of the server; empty if the variant was accepted.
    """

    name: str
    base: str
    group: Group
    outcome: Outcome
    message: str


# Missing on this machine, but present in NVIDIA's container on a machine with GPUs.
_MISSING_HERE = re.compile(
    r"no GPUs are available|unsupported gpu id|kind KIND_CPU but specifies one or more GPUs"
    r"|backend library (for backend '(tensorrt|pytorch)'|'libtriton_onnxruntime.so')|libtritonrepoagent_checksum"
    r"|Execution Accelerator 'openvino'|Failed to get the canonical path"
)
_EXPLANATIONS = {
    "warmup/inputs_extra": "loads only sometimes: an unknown input in a warmup may crash the server",
    "state/input_of_model": "the lenient backend does not require the state input of the graph",
    "batch/bool/hex": "a boolean written as 0x0, which protobuf's Python parser does not accept",
    "batch/operations/absent": "repogen does not load the model: NVIDIA's backend would run the library",
    "root/model_dollar": "repogen does not load the model: a Python backend would pass its name to a shell",
}


_REJECTED_BY_RUNTIME = "ONNX Runtime's provider_options_utils.h; no GPU here"
_REJECTED_BY_SOURCE = "src/onnxruntime.cc of NVIDIA's backend, LoadModel; no GPU here"
# Measured on the stock C++ backend of 24.10, which the embedded server does not have, or read in its source.
_STOCK: dict[str, tuple[Outcome, str]] = {
    "batch/runtime/python": ("reject", "unable to find Python backend based backend library 'model.py'"),
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
    "accelerated/precision_unknown": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/parameter_misspelled": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/dla_core_word": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/cache_word": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/cuda_word": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/precision_lower_case": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/workspace_word": ("reject", _REJECTED_BY_SOURCE),
    "accelerated/cuda_misspelled": ("reject", _REJECTED_BY_RUNTIME),
    "accelerated/gpu_io": ("reject", _REJECTED_BY_SOURCE),
    **dict.fromkeys(
        (
            "accelerated/as_it_is",
            "accelerated/cache_on",
            "accelerated/cache_path",
            "accelerated/cuda",
            "accelerated/cuda_limit",
            "accelerated/int8",
            "accelerated/workspace",
        ),
        ("accept", ""),
    ),
}


def on_stock_backend(result: ServerResult) -> ServerResult:
    """Return the result on NVIDIA's backend if it is known to differ from that of the embedded server."""
    if result.name not in _STOCK:
        return result
    outcome, message = _STOCK[result.name]
    return replace(result, outcome=outcome, message=message)


def explanation(result: ServerResult) -> str:
    """Return why `repogen check` may differ from a result; empty if it must not."""
    if result.outcome != "accept" and _MISSING_HERE.search(result.message):
        return "the machine of the benchmark has no such GPU, backend or agent"
    return _EXPLANATIONS.get(result.name, "")
