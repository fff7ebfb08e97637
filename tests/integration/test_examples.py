"""The examples, built by the real command and tested on a real Triton server, as in the README."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.serving.servers import find_server
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.full  # `make test` builds the digits in test_model_repository.py and test_optimize.py

EXAMPLES = Path(__file__).parents[2] / "examples"
BATCH = 32  # max_batch_size of the digits
# Runs in another process: it needs torch, and not repogen.
REFERENCE = """\
import sys
import numpy as np
import torch
from data import load_split
from models import build
from safetensors.torch import load_file

model = build(width=16).eval()
model.load_state_dict(load_file("digits_cnn.safetensors"))
_, _, images, labels = load_split()
with torch.no_grad():
    np.savez(sys.argv[1], images=images, labels=labels, logits=model(torch.from_numpy(images)).numpy())
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """Return a function that builds an example once in its own repository, and checks that it is then up to date."""
    built: dict[str, tuple[Path, dict[str, Any]]] = {}

    def run(name: str, repository: Path) -> dict[str, Any]:
        command = [sys.executable, "-m", "repogen", "build", str(EXAMPLES / name / "repogen.yaml")]
        command += ["--repository", str(repository), "--json"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        (model,) = json.loads(result.stdout)["models"]
        return dict(model)

    def example(name: str) -> tuple[Path, dict[str, Any]]:
        if name not in built:
            repository = tmp_path_factory.mktemp(name) / "model_repository"
            model = run(name, repository)
            assert run(name, repository)["status"] == "unchanged"
            built[name] = (repository, model)
        return built[name]

    return example


@pytest.mark.parametrize(
    ("name", "model_name", "max_batch_size"),
    [
        ("digits", "digits_cnn", 32),
        ("minilm", "minilm", 32),
        ("resnet18", "resnet18", 16),
        ("distilbert", "distilbert", 16),
    ],
)
def test_example_is_published(
    build: Callable[[str], tuple[Path, dict[str, Any]]], name: str, model_name: str, max_batch_size: int
) -> None:
    """Exported by dynamo, equal to PyTorch, batched, and served by Triton; the second build changes nothing."""
    repository, model = build(name)
    assert (model["name"], model["status"], model["version"]) == (model_name, "published", 1)
    assert (model["exporter"], model["max_batch_size"], model["batch_reason"]) == ("dynamo", max_batch_size, None)
    assert model["parity"]["passed"]
    assert 0 < model["parity"]["max_abs_diff"] < 1e-3  # exactly 0 would mean that no values were compared
    assert model["parity"]["cases"] >= 5
    assert (model["smoke"]["passed"], model["smoke"]["server"]) == (True, "embedded")
    assert (repository / model_name / "1" / "model.onnx").is_file()


def test_accuracy_through_triton_equals_pytorchs(
    build: Callable[[str], tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    """The test split of the digits in batches over gRPC: the same logits, and an accuracy of at least 97 %."""
    repository, _ = build("digits")
    for path in (EXAMPLES / "digits").iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    subprocess.run([sys.executable, "-c", REFERENCE, "split.npz"], cwd=tmp_path, check=True)
    split = np.load(tmp_path / "split.npz")
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    answers = []
    with (
        embedded.running(repository, ControlMode.NONE) as triton,
        InferenceServerClient(triton.endpoint.grpc) as client,
    ):
        for start in range(0, len(split["images"]), BATCH):
            images = split["images"][start : start + BATCH]
            rows = InferInput("image", list(images.shape), "FP32")
            rows.set_data_from_numpy(images)
            answers.append(client.infer("digits_cnn", [rows]).as_numpy("logits"))
    logits = np.concatenate(answers)
    accuracy, expected = (float((scores.argmax(1) == split["labels"]).mean()) for scores in (logits, split["logits"]))
    np.testing.assert_allclose(logits, split["logits"], rtol=1e-3, atol=1e-4)
    assert expected == accuracy
    assert accuracy >= 0.97


def test_text_classification(tmp_path: Path) -> None:
    """Three steps as one ensemble on a real Triton server classify sentences correctly."""
    command = [sys.executable, "-m", "repogen", "build", str(EXAMPLES / "text" / "repogen.yaml")]
    result = subprocess.run([*command, "--repository", str(tmp_path / "r"), "--json"], capture_output=True, check=False)
    reports = {model["name"]: model for model in json.loads(result.stdout)["models"]}
    assert result.returncode == 0
    assert {name: report["max_batch_size"] for name, report in reports.items()} == {
        "text_tokenizer": 0,  # it pads to the longest text of a request
        "text_encoder": 32,
        "text_labels": 32,
        "text_classifier": 32,
    }
    assert reports["text_classifier"]["smoke"]["passed"]
    questions = {
        "He scored in the last minute of the match.": "sports",
        "Thunder and hail are expected this evening.": "weather",
        "Whisk the eggs and add the flour.": "cooking",
        "The company raised its dividend.": "finance",
    }
    embedded = find_server("embedded", targets()[DEFAULT_RELEASE], Silent())
    with (
        embedded.running(tmp_path / "r", ControlMode.NONE) as triton,
        InferenceServerClient(triton.endpoint.grpc) as client,
    ):
        text = InferInput("text", [len(questions), 1], "BYTES")
        text.set_data_from_numpy(np.array([[question.encode()] for question in questions], dtype=object))
        labels = client.infer("text_classifier", [text]).as_numpy("label")
    assert [label.decode() for label in labels[:, 0]] == list(questions.values())
