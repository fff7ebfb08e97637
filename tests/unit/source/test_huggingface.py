"""Loading transformers directories: derived inputs, outputs, labels and companion files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from repogen.artifacts.tensors import TensorSpec
from repogen.source.huggingface.text import TextSampler
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

from .checkpoints import MODELS, save

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import SourceModel

B, S = "batch", "sequence"
IDS = {"input_ids": (B, S), "attention_mask": (B, S)}
TYPED = {**IDS, "token_type_ids": (B, S)}
EXPECTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text-classification": (TYPED, {"logits": (2, 3)}),
    "token-classification": (TYPED, {"logits": (2, 16, 5)}),
    "question-answering": (IDS, {"start_logits": (2, 16), "end_logits": (2, 16)}),
    "fill-mask": (TYPED, {"logits": (2, 16, 99)}),
    "text-generation": (IDS, {"logits": (2, 16, 99)}),
    "feature-extraction": (IDS, {"last_hidden_state": (2, 16, 16), "pooler_output": (2, 16)}),
    "seq2seq-encoder": (IDS, {"last_hidden_state": (2, 16, 16)}),
    "zero-shot-classification": (IDS, {"logits": (2, 3)}),
    "image-classification": ({"pixel_values": (B, 3, 32, 32)}, {"logits": (2, 3)}),
    "image-feature-extraction": (
        {"pixel_values": (B, 3, 32, 32)},
        {"last_hidden_state": (2, 17, 16), "pooler_output": (2, 16)},
    ),
    "any-size-classification": ({"pixel_values": (B, 3, 224, 224)}, {"logits": (2, 3)}),
    "image-segmentation": ({"pixel_values": (B, 3, 64, 64)}, {"logits": (2, 4, 16, 16)}),
    "object-detection": ({"pixel_values": (B, 3, 32, 48)}, {"logits": (2, 5, 5), "pred_boxes": (2, 5, 4)}),
    "depth-estimation": ({"pixel_values": (B, 3, 224, 224)}, {"predicted_depth": (2, 224, 224)}),
    "audio-classification": ({"input_values": (B, 64, 32)}, {"logits": (2, 3)}),
    "automatic-speech-recognition": ({"input_values": (B, "samples")}, {"logits": (2, 16, 12)}),
    "speech-encoder": ({"input_features": (B, 8, 40)}, {"last_hidden_state": (2, 20, 16)}),
    "zero-shot-image-classification": (
        {
            "input_ids": ("text_batch", S),
            "attention_mask": ("text_batch", S),
            "pixel_values": ("image_batch", 3, 32, 32),
        },
        {"logits_per_image": (3, 2), "logits_per_text": (2, 3)},
    ),
}


def load(root: Path, model: str = "model", **spec: Any) -> SourceModel:
    """Load a directory below ``root``."""
    source = {"kind": "huggingface", "model": model, **spec.pop("source", {})}
    return load_source(ModelSpec.model_validate({"source": source, **spec}), root)


def shapes(tensors: tuple[TensorSpec, ...]) -> dict[str, Any]:
    """Return the shapes by name."""
    return {spec.name: spec.shape for spec in tensors}


def test_every_model_has_an_expected_signature() -> None:
    """Both tables have the same tasks."""
    assert set(MODELS) == set(EXPECTED)


@pytest.mark.parametrize("name", MODELS)
def test_task_determines_inputs_and_outputs(name: str, tmp_path: Path) -> None:
    """Names, dynamic dims and outputs come from the task and the configuration; the model runs on the examples."""
    save(name, tmp_path / "model")
    source = load(tmp_path)
    inputs, outputs = EXPECTED[name]
    assert (inputs, outputs) == (shapes(source.signature.inputs), shapes(source.signature.outputs))
    low = {dim: bounds.min for dim, bounds in source.dims.items()}
    result = source.reference(source.examples(low, 1))
    assert all(np.isfinite(array).all() for array in result.values())


def test_reference_matches_transformers(tmp_path: Path) -> None:
    """The reference returns what the original model returns."""
    save("text-classification", tmp_path / "model")
    source = load(tmp_path)
    arrays = source.examples({"batch": 3, "sequence": 9}, 5)
    torch.manual_seed(0)
    original = MODELS["text-classification"]().eval()
    with torch.no_grad():
        expected = original(**{name: torch.from_numpy(array) for name, array in arrays.items()}).logits.numpy()
    actual: Any = source.reference(arrays)["logits"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_text_rows_have_different_lengths(tmp_path: Path) -> None:
    """Masks start with ones, no row is empty, the longest is full, padding has the pad ID, seeds are repeatable."""
    save("text-classification", tmp_path / "model")
    source = load(tmp_path)
    arrays: dict[str, Any] = dict(source.examples({"batch": 4, "sequence": 12}, 7))
    mask, ids = arrays["attention_mask"], arrays["input_ids"]
    lengths = mask.sum(axis=1).tolist()
    assert (len(set(lengths)), max(lengths)) == (4, 12)
    assert min(lengths) > 0
    assert (mask == (np.arange(12) < np.array(lengths)[:, None])).all()
    assert (ids[mask == 0] == 0).all()
    assert (ids[mask == 1] != 0).all()
    assert (ids < 99).all()
    assert (arrays["token_type_ids"] <= 1).all()
    again = source.examples({"batch": 4, "sequence": 12}, 7)
    assert all((arrays[name] == again[name]).all() for name in arrays)
    assert not (ids == source.examples({"batch": 4, "sequence": 12}, 8)["input_ids"]).all()


def test_position_embeddings_bound_the_sequence(tmp_path: Path) -> None:
    """40 positions allow 40 tokens; RoBERTa reserves two of them for padding, which leaves 38."""
    save("text-classification", tmp_path / "bert")
    save("token-classification", tmp_path / "roberta")
    save("seq2seq-encoder", tmp_path / "t5")
    longest = [load(tmp_path, name).dims["sequence"].max for name in ("bert", "roberta", "t5")]
    assert longest == [40, 38, 512]


def test_dims_in_the_spec_override_derived_ones(tmp_path: Path) -> None:
    """A dim in the spec sets the bounds; equal bounds make it a fixed size."""
    save("text-classification", tmp_path / "model")
    source = load(tmp_path, dims={"sequence": {"min": 24, "max": 24}, "batch": {"max": 8}})
    assert source.signature.inputs[0].shape == ("batch", 24)
    assert {name: dim.max for name, dim in source.dims.items()} == {"batch": 8}


def test_height_and_width_are_dynamic_when_listed_in_the_spec(tmp_path: Path) -> None:
    """The channels stay fixed."""
    save("any-size-classification", tmp_path / "model")
    source = load(tmp_path, dims={"height": {"min": 32, "max": 96}, "width": {"min": 32, "max": 96}})
    assert source.signature.inputs[0].shape == ("batch", 3, "height", "width")


def test_preprocessor_specifies_the_image_size(tmp_path: Path) -> None:
    """Without an image size in config.json, the crop of the preprocessor is the input size."""
    directory = save("any-size-classification", tmp_path / "model")
    settings = {"size": {"shortest_edge": 80}, "crop_size": {"height": 64, "width": 48}, "do_center_crop": True}
    (directory / "preprocessor_config.json").write_text(json.dumps(settings))
    assert load(tmp_path).signature.inputs[0].shape == ("batch", 3, 64, 48)


def test_tokenizer_lists_the_inputs(tmp_path: Path) -> None:
    """An input that the tokenizer does not produce is left out."""
    directory = save("text-classification", tmp_path / "model")
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    assert shapes(load(tmp_path).signature.inputs) == IDS


def test_feature_extractor_with_a_mask(tmp_path: Path) -> None:
    """Samples outside the mask are zeros."""
    directory = save("automatic-speech-recognition", tmp_path / "model")
    (directory / "preprocessor_config.json").write_text(json.dumps({"return_attention_mask": True}))
    source = load(tmp_path)
    arrays = source.examples({"batch": 3, "samples": 800}, 0)
    assert list(arrays) == ["input_values", "attention_mask"]
    assert (arrays["input_values"][arrays["attention_mask"] == 0] == 0).all()
    assert len(set(arrays["attention_mask"].sum(axis=1).tolist())) == 3


def test_declared_inputs_override_derived_ones(tmp_path: Path) -> None:
    """The model has only the inputs that the spec declares."""
    save("text-classification", tmp_path / "model")
    inputs = {"input_ids": {"dtype": "int64", "shape": ["batch", 12], "range": [5, 98]}}
    source = load(tmp_path, inputs=inputs, dims={"batch": {"max": 4}})
    assert shapes(source.signature.inputs) == {"input_ids": ("batch", 12)}


def test_intermediate_states_can_be_requested(tmp_path: Path) -> None:
    """Hidden states and attentions are outputs only when the spec lists them."""
    save("text-classification", tmp_path / "model")
    names = ["logits", "hidden_states_output_1", "attentions_output_0"]
    outputs = shapes(load(tmp_path, outputs=names).signature.outputs)
    assert outputs == {"logits": (2, 3), "hidden_states_output_1": (2, 16, 16), "attentions_output_0": (2, 2, 16, 16)}


def test_task_can_differ_from_the_architecture(tmp_path: Path) -> None:
    """A masked language model can be used for features: its head and the missing pooler are left out."""
    save("fill-mask", tmp_path / "model")
    source = load(tmp_path, source={"task": "feature-extraction"})
    assert shapes(source.signature.outputs) == {"last_hidden_state": (2, 16, 16)}
    notes = " ".join(source.notes)
    assert "the pooler was left out: the checkpoint has no weights for it" in notes
    assert "weights of another head were left out: cls.predictions.bias" in notes


def test_model_card_specifies_the_task_without_architectures(tmp_path: Path) -> None:
    """Without architectures in config.json, the card's pipeline_tag is the task."""
    directory = save("text-classification", tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    del config["architectures"]
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "README.md").write_text("---\nlicense: mit\npipeline_tag: text-classification\n---\n# Model\n")
    assert shapes(load(tmp_path).signature.outputs) == {"logits": (2, 3)}


def test_class_labels(tmp_path: Path) -> None:
    """Labels come from id2label, in order; transformers' default labels are ignored."""
    save("text-classification", tmp_path / "named")
    save("object-detection", tmp_path / "detector")
    assert load(tmp_path, "named").labels == {"logits": ("red", "green", "deep blue")}
    assert load(tmp_path, "detector").labels == {}


def test_companion_files_and_build_inputs(tmp_path: Path) -> None:
    """Tokenizer, configuration and license are published; changed weights or tokenizers require a new build."""
    directory = save("text-classification", tmp_path / "model")
    for name in ("tokenizer.json", "vocab.txt", "LICENSE", "README.md", "training_args.bin", "train.py"):
        (directory / name).write_text("{}")
    (tmp_path / "secret").write_text("not the model's")
    (directory / "merges.txt").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").chmod(0o600)
    os.link(tmp_path / "secret", directory / "added_tokens.json")
    source = load(tmp_path)
    companions = ["LICENSE", "README.md", "config.json", "tokenizer.json", "vocab.txt"]
    assert companions == sorted(companion.name for companion in source.companions)
    assert {*companions, "added_tokens.json", "merges.txt", "model.safetensors"} == {path.name for path in source.files}
    assert any("merges.txt" in note for note in source.notes)
    assert any(note.endswith("not every user may read them: added_tokens.json") for note in source.notes)


@pytest.mark.parametrize("task", ["text-generation", "fill-mask"])
def test_decoder_is_published_without_its_cache(tmp_path: Path, task: str) -> None:
    """The report says so, for decoders only."""
    save(task, tmp_path / "model")
    notes = [note for note in load(tmp_path).notes if "published without the key-value cache" in note]
    assert len(notes) == (task == "text-generation")


def test_half_precision_weights(tmp_path: Path) -> None:
    """bfloat16 becomes float32, with a note; float16 is kept, and the spec can request it."""
    torch.manual_seed(0)
    MODELS["image-classification"]().to(torch.bfloat16).save_pretrained(tmp_path / "bf16")
    MODELS["image-classification"]().to(torch.float16).save_pretrained(tmp_path / "fp16")
    wide, half = load(tmp_path, "bf16"), load(tmp_path, "fp16")
    requested = load(tmp_path, "bf16", source={"dtype": "float16"})
    assert [s.signature.inputs[0].dtype for s in (wide, half, requested)] == ["float32", "float16", "float16"]
    assert any("from bfloat16 to float32" in note for note in wide.notes)


def test_sharded_and_pickled_weights(tmp_path: Path) -> None:
    """Sharded weights are combined; a pickle that contains only tensors is read without running code."""
    save("text-classification", tmp_path / "single")
    shards = save("text-classification", tmp_path / "shards", max_shard_size="10KB")
    assert (shards / "model.safetensors.index.json").is_file()
    pickled = save("text-classification", tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.manual_seed(0)
    torch.save(MODELS["text-classification"]().state_dict(), pickled / "pytorch_model.bin")
    sources = [load(tmp_path, name) for name in ("single", "shards", "pickled")]
    arrays = sources[0].examples({"batch": 2, "sequence": 7}, 0)
    first, *others = (source.reference(arrays)["logits"] for source in sources)
    assert all((first == other).all() for other in others)


def test_number_of_token_types_is_not_trusted() -> None:
    """config.json can state any number, also for a model without token types; memory was allocated for each of them."""
    specs = (TensorSpec("input_ids", "int64", ("batch", "sequence")),)
    sampler = TextSampler(specs, vocabulary=8, special=frozenset(), pad=None, end=None, types=2**60, page=0)
    assert sampler({"batch": 2, "sequence": 5}, 0)["input_ids"].shape == (2, 5)
