"""Versions of a few bytes, staged by the real code, and the versions that a fresh Triton would serve."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Protocol

import pytest

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.named_file import data_file, label_file
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import ModelConfig, Provenance, StagedVersion
from repogen.repository.layout import triton_versions
from repogen.repository.stage import stage_version
from repogen.repository.version_policy import served_versions
from repogen.triton_config.text.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tensors import Dim


class Stage(Protocol):
    """Stages a version of model ``m``."""

    def __call__(
        self,
        weights: bytes = b"w",
        batch: int = 8,
        shape: tuple[Dim, ...] = ("batch", 4),
        policy: str = "",
        labels: tuple[str, ...] = (),
        warmup: bytes = b"",
    ) -> StagedVersion:
        """Return the staged version; ``policy`` is the text inside ``version_policy { … }``."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return the path of a repository that does not exist yet."""
    return tmp_path / "repo"


@pytest.fixture
def stage(tmp_path: Path, repository: Path) -> Stage:
    """Return a function that stages versions, each in its own root."""
    roots = (tmp_path / f"stage-{n}" for n in count())

    def make(
        weights: bytes = b"w",
        batch: int = 8,
        shape: tuple[Dim, ...] = ("batch", 4),
        policy: str = "",
        labels: tuple[str, ...] = (),
        warmup: bytes = b"",
    ) -> StagedVersion:
        root = next(roots)
        root.mkdir()
        for name, content in {"model.onnx": weights, "golden.json": b"{}", "golden.npz": b"npz"}.items():
            (root / name).write_bytes(content)
        signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
        dims = ["-1" if isinstance(dim, str) else str(dim) for dim in shape]
        text = f'name: "m"\nmax_batch_size: {batch}\n# graph: {dims}\n'
        text += f"version_policy {{ {policy} }}\n" if policy else ""
        files = (label_file(labels),) if labels else ()
        text += "".join(f'output {{ name: "y" label_filename: "{file.name}" }}\n' for file in files)
        if warmup:
            warmup_file = data_file("warmup", warmup)
            inputs = f'inputs {{ key: "x" value {{ input_data_file: "{warmup_file.name}" }} }}'
            text += f"model_warmup {{ {inputs} }}\n"
            files = (*files, warmup_file)
        provenance = Provenance({}, "", "", {}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
        artifact = OnnxArtifact(root / "model.onnx", external_data=False, signature=signature, opset=20, ir_version=10,
                                nodes=1, exporter="dynamo")  # fmt: skip
        return stage_version(
            root, repository, ModelConfig("m", text, batch, signature, files), artifact, root, provenance
        )

    return make


def _facts(config: str) -> tuple[int, str]:
    """Return max_batch_size and what the config was rendered for."""
    match = re.search(r"max_batch_size: (\d+)\n# graph: (.*)\n", config)
    assert match
    return int(match[1]), match[2]


@pytest.fixture
def served() -> Served:
    """Return a function to the versions that a freshly started Triton would serve."""

    def judge(repository: Path) -> list[int]:
        model = repository / "m"
        text = (model / "config.pbtxt").read_text()
        batch, graph = _facts(text)
        loaded = served_versions(parse(text, model.name), triton_versions(model))
        assert loaded, "nothing would be served"
        assert all((model / file).is_file() for file in re.findall(r'label_filename: "(.*?)"', text)), "no label file"
        assert all((model / "warmup" / file).is_file() for file in re.findall(r'input_data_file: "(.*?)"', text))
        for version in loaded:
            kept_batch, kept_graph = _facts((model / str(version) / "config.pbtxt").read_text())
            assert kept_graph == graph, f"version {version} would not load"
            assert kept_batch or not batch, f"version {version} would be batched, and was never shown to batch"
            assert (model / str(version) / "manifest.json").is_file()
            assert (model / str(version) / "model.onnx").is_file()
        assert [path.name for path in repository.iterdir() if path.is_dir()] == ["m"]
        return sorted(loaded)

    return judge


class Served(Protocol):
    """Returns the versions of model ``m`` that a fresh Triton serves; fails if one would not load."""

    def __call__(self, repository: Path) -> list[int]:
        """Judge ``repository``."""
