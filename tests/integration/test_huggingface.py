"""A transformers checkpoint, built with the command line and served by a real Triton with class labels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Project

SPEC = """\
models:
  colors:
    source: {kind: huggingface, model: checkpoint}
    triton:
      instance_group: [{count: 1, kind: KIND_CPU}]
"""
LABELS = ("red", "green", "deep blue")


def write_checkpoint(directory: Path) -> Any:
    """Write a small classifier with random weights, and files that accompany one on the Hub."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        id2label=dict(enumerate(LABELS)),
        label2id={label: n for n, label in enumerate(LABELS)},
    )
    model: Any = transformers.BertForSequenceClassification(config)
    model.eval()
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    (directory / "LICENSE").write_text("Apache-2.0")
    return model


@pytest.fixture
def original(new_project: Callable[[Path], Project], tmp_path: Path) -> tuple[Project, Any]:
    """Return a project with a checkpoint, and the saved model."""
    project = new_project(tmp_path)
    project.spec.write_text(SPEC)
    return project, write_checkpoint(project.directory / "checkpoint")


@pytest.mark.full
def test_class_labels_are_served(original: tuple[Project, Any]) -> None:
    """Triton's classification extension returns the labels of the highest logits; companion files are published."""
    project, model = original
    process = project.run("build", "--json")
    assert process.returncode == 0, process.stderr
    (report,) = json.loads(process.stdout)["models"]
    assert (report["status"], report["version"]) == ("published", 1)
    repository = project.directory / "model_repository"
    manifest = json.loads((repository / "colors" / "1" / "manifest.json").read_text())
    assert {"tokenizer.json", "config.json", "LICENSE"} <= {file["path"] for file in manifest["files"]}
    (repeated,) = json.loads(project.run("build", "--json").stdout)["models"]
    assert repeated["status"] == "unchanged"

    ids = np.array([[5, 6, 7, 8], [9, 10, 11, 0]], np.int64)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int64)
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).logits.numpy()
    expected = [[LABELS[n] for n in np.argsort(-row)[:2]] for row in logits]
    assert served_classes(repository, {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}) == expected

    (project.directory / "checkpoint" / "tokenizer.json").write_text('{"version": "2"}')
    (changed,) = json.loads(project.run("build", "--json").stdout)["models"]
    assert (changed["status"], changed["version"]) == ("published", 2)


def served_classes(repository: Path, inputs: dict[str, np.ndarray[Any, Any]]) -> list[list[str]]:
    """Return the labels of the two highest classes of the served model, for each row."""
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    embedded.preflight()
    tensors = []
    for name, array in inputs.items():
        tensors.append(InferInput(name, list(array.shape), "INT64"))
        tensors[-1].set_data_from_numpy(array)
    with embedded.running(repository, ControlMode.NONE) as running:
        client = InferenceServerClient(running.endpoint.grpc)
        outputs = [InferRequestedOutput("logits", class_count=2)]
        classes = client.infer("colors", tensors, outputs=outputs).as_numpy("logits")
        client.close()
    assert classes is not None
    return [[entry.decode().split(":", 2)[2] for entry in row] for row in classes]
