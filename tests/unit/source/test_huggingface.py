"""Directories of transformers become models with inputs, outputs, labels and companions that nobody spelled out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

from .checkpoints import MODELS, save

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.source import SourceModel
    from repogen.artifacts.tensors import TensorSpec

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


def test_every_model_has_its_expectation() -> None:
    """The tables are of the same tasks."""
    assert set(MODELS) == set(EXPECTED)


@pytest.mark.parametrize("name", MODELS)
def test_a_task_has_its_inputs_and_outputs(name: str, tmp_path: Path) -> None:
    """Names, dynamic dims and outputs come from task and configuration, and the model runs on what is drawn."""
    save(name, tmp_path / "model")
    source = load(tmp_path)
    inputs, outputs = EXPECTED[name]
    assert (inputs, outputs) == (shapes(source.signature.inputs), shapes(source.signature.outputs))
    low = {dim: bounds.min for dim, bounds in source.dims.items()}
    answer = source.reference(source.examples(low, 1))
    assert all(np.isfinite(array).all() for array in answer.values())


def test_a_reference_answers_as_transformers_does(tmp_path: Path) -> None:
    """Nothing but the wrapper lies between the model and its reference."""
    save("text-classification", tmp_path / "model")
    source = load(tmp_path)
    drawn = source.examples({"batch": 3, "sequence": 9}, 5)
    torch.manual_seed(0)
    original = MODELS["text-classification"]().eval()
    with torch.no_grad():
        expected = original(**{name: torch.from_numpy(array) for name, array in drawn.items()}).logits.numpy()
    answer: Any = source.reference(drawn)["logits"]
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


def test_rows_of_text_end_at_different_places(tmp_path: Path) -> None:
    """Masks begin with ones, no row is empty, the longest is full; padding has the pad's id; a seed repeats itself."""
    save("text-classification", tmp_path / "model")
    source = load(tmp_path)
    drawn: dict[str, Any] = dict(source.examples({"batch": 4, "sequence": 12}, 7))
    mask, ids = drawn["attention_mask"], drawn["input_ids"]
    lengths = mask.sum(axis=1).tolist()
    assert (len(set(lengths)), max(lengths)) == (4, 12)
    assert min(lengths) > 0
    assert (mask == (np.arange(12) < np.array(lengths)[:, None])).all()
    assert (ids[mask == 0] == 0).all()
    assert (ids[mask == 1] != 0).all()
    assert (ids < 99).all()
    assert (drawn["token_type_ids"] <= 1).all()
    again = source.examples({"batch": 4, "sequence": 12}, 7)
    assert all((drawn[name] == again[name]).all() for name in drawn)
    assert not (ids == source.examples({"batch": 4, "sequence": 12}, 8)["input_ids"]).all()


def test_positions_bound_the_sequence(tmp_path: Path) -> None:
    """A table of 40 positions takes 40 tokens, and a RoBERTa's, whose first two stand for padding, 38."""
    save("text-classification", tmp_path / "bert")
    save("token-classification", tmp_path / "roberta")
    save("seq2seq-encoder", tmp_path / "t5")
    found = [load(tmp_path, name).dims["sequence"].max for name in ("bert", "roberta", "t5")]
    assert found == [40, 38, 512]


def test_dims_of_the_spec_win(tmp_path: Path) -> None:
    """A named dim gets other bounds; one with equal bounds is a fixed size."""
    save("text-classification", tmp_path / "model")
    source = load(tmp_path, dims={"sequence": {"min": 24, "max": 24}, "batch": {"max": 8}})
    assert source.signature.inputs[0].shape == ("batch", 24)
    assert {name: dim.max for name, dim in source.dims.items()} == {"batch": 8}


def test_height_and_width_are_free_when_the_spec_names_them(tmp_path: Path) -> None:
    """The channels stay fixed."""
    save("any-size-classification", tmp_path / "model")
    source = load(tmp_path, dims={"height": {"min": 32, "max": 96}, "width": {"min": 32, "max": 96}})
    assert source.signature.inputs[0].shape == ("batch", 3, "height", "width")


def test_a_preprocessor_says_the_size(tmp_path: Path) -> None:
    """Where the configuration has none, or none that counts, the crop is what the model sees."""
    directory = save("any-size-classification", tmp_path / "model")
    settings = {"size": {"shortest_edge": 80}, "crop_size": {"height": 64, "width": 48}, "do_center_crop": True}
    (directory / "preprocessor_config.json").write_text(json.dumps(settings))
    assert load(tmp_path).signature.inputs[0].shape == ("batch", 3, 64, 48)


def test_a_tokenizer_says_which_inputs_it_makes(tmp_path: Path) -> None:
    """An input that no tokenizer fills is left out."""
    directory = save("text-classification", tmp_path / "model")
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    assert shapes(load(tmp_path).signature.inputs) == IDS


def test_a_feature_extractor_says_whether_there_is_a_mask(tmp_path: Path) -> None:
    """Padded samples are zeros, as its mask says."""
    directory = save("automatic-speech-recognition", tmp_path / "model")
    (directory / "preprocessor_config.json").write_text(json.dumps({"return_attention_mask": True}))
    source = load(tmp_path)
    drawn = source.examples({"batch": 3, "samples": 800}, 0)
    assert list(drawn) == ["input_values", "attention_mask"]
    assert (drawn["input_values"][drawn["attention_mask"] == 0] == 0).all()
    assert len(set(drawn["attention_mask"].sum(axis=1).tolist())) == 3


def test_declared_inputs_win(tmp_path: Path) -> None:
    """What the spec declares is all that the model is given."""
    save("text-classification", tmp_path / "model")
    inputs = {"input_ids": {"dtype": "int64", "shape": ["batch", 12], "range": [5, 98]}}
    source = load(tmp_path, inputs=inputs, dims={"batch": {"max": 4}})
    assert shapes(source.signature.inputs) == {"input_ids": ("batch", 12)}


def test_outputs_of_the_spec_may_ask_for_intermediate_states(tmp_path: Path) -> None:
    """Hidden states and attentions come when they are named, and only then."""
    save("text-classification", tmp_path / "model")
    wanted = ["logits", "hidden_states_output_1", "attentions_output_0"]
    found = shapes(load(tmp_path, outputs=wanted).signature.outputs)
    assert found == {"logits": (2, 3), "hidden_states_output_1": (2, 16, 16), "attentions_output_0": (2, 2, 16, 16)}


def test_a_task_may_be_another_than_the_architecture(tmp_path: Path) -> None:
    """The body of a masked language model gives features; its head, and the pooler it never had, are left out."""
    save("fill-mask", tmp_path / "model")
    source = load(tmp_path, source={"task": "feature-extraction"})
    assert shapes(source.signature.outputs) == {"last_hidden_state": (2, 16, 16)}
    said = " ".join(source.notes)
    assert "the checkpoint has no weights of the pooler" in said
    assert "weights of another head were left out: cls.predictions.bias" in said


def test_a_model_card_names_the_task_when_the_configuration_does_not(tmp_path: Path) -> None:
    """Without architectures, the card's pipeline_tag counts."""
    directory = save("text-classification", tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    del config["architectures"]
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "README.md").write_text("---\nlicense: mit\npipeline_tag: text-classification\n---\n# Model\n")
    assert shapes(load(tmp_path).signature.outputs) == {"logits": (2, 3)}


def test_classes_have_their_names(tmp_path: Path) -> None:
    """Labels are those of id2label, in order; transformers' stand-ins are none."""
    save("text-classification", tmp_path / "named")
    save("object-detection", tmp_path / "detector")
    assert load(tmp_path, "named").labels == {"logits": ("red", "green", "deep blue")}
    assert load(tmp_path, "detector").labels == {}


def test_companions_travel_and_every_file_counts(tmp_path: Path) -> None:
    """Tokenizer, configuration and license go with the version; a change of weights or tokenizer is a new build."""
    directory = save("text-classification", tmp_path / "model")
    for name in ("tokenizer.json", "vocab.txt", "LICENSE", "README.md", "training_args.bin", "train.py"):
        (directory / name).write_text("{}")
    (tmp_path / "secret").write_text("not the model's")
    (directory / "merges.txt").symlink_to(tmp_path / "secret")
    source = load(tmp_path)
    travelling = ["LICENSE", "README.md", "config.json", "tokenizer.json", "vocab.txt"]
    assert travelling == sorted(companion.name for companion in source.companions)
    assert {*travelling, "merges.txt", "model.safetensors"} == {path.name for path in source.files}
    assert any("merges.txt" in note for note in source.notes)


def test_half_precision_weights_are_loaded_as_asked(tmp_path: Path) -> None:
    """Bfloat16 becomes float32, which is said; float16 stays, and is what the spec may ask for."""
    torch.manual_seed(0)
    MODELS["image-classification"]().to(torch.bfloat16).save_pretrained(tmp_path / "bf16")
    MODELS["image-classification"]().to(torch.float16).save_pretrained(tmp_path / "fp16")
    wide, half = load(tmp_path, "bf16"), load(tmp_path, "fp16")
    asked = load(tmp_path, "bf16", source={"dtype": "float16"})
    assert [s.signature.inputs[0].dtype for s in (wide, half, asked)] == ["float32", "float16", "float16"]
    assert any("cast from bfloat16 to float32" in note for note in wide.notes)


def test_shards_and_pickled_weights_are_read(tmp_path: Path) -> None:
    """Several files are one model; a pickle of tensors alone is read without running it."""
    save("text-classification", tmp_path / "whole")
    shards = save("text-classification", tmp_path / "shards", max_shard_size="10KB")
    assert (shards / "model.safetensors.index.json").is_file()
    pickled = save("text-classification", tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.manual_seed(0)
    torch.save(MODELS["text-classification"]().state_dict(), pickled / "pytorch_model.bin")
    sources = [load(tmp_path, name) for name in ("whole", "shards", "pickled")]
    drawn = sources[0].examples({"batch": 2, "sequence": 7}, 0)
    first, *others = (source.reference(drawn)["logits"] for source in sources)
    assert all((first == other).all() for other in others)
