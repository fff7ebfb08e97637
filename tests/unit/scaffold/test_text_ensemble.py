"""`init --from HF_DIRECTORY --ensemble`: the tokenizer, the encoder, the labels, and the ensemble of the three."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SpecError
from repogen.scaffold.files import describe_ensemble, scaffold_from
from repogen.spec.load import load_spec
from tests.support.text_classifier import write_text_classifier, write_text_encoder

if TYPE_CHECKING:
    from repogen.spec.models import Spec


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_ensemble_of_a_classifier(here: Path) -> None:
    """The spec is complete: inputs, sizes and classes are those of the model."""
    write_text_classifier(here / "mood")
    written = scaffold_from(describe_ensemble("mood", Path("spec"), None), Path("spec"), force=False)
    assert [path.name for path in written] == [
        *("repogen.yaml", "tokenizer.py", "labels.py", "examples.py"),
        *("tokenizer.json", "config.json"),
    ]
    spec: Spec = load_spec(Path("spec/repogen.yaml"))
    assert list(spec.models) == ["mood_tokenizer", "mood_encoder", "mood_labels", "mood"]
    assert list(spec.models["mood_tokenizer"].declared_outputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert spec.models["mood_encoder"].dims["sequence"].max == 32
    assert spec.models["mood_labels"].inputs["logits"].shape == ("batch", 3)
    for name in ("tokenizer", "labels", "examples"):
        compile(Path(f"spec/{name}.py").read_text(), name, "exec")
    with pytest.raises(SpecError, match=r"labels\.py|tokenizer\.py"):
        scaffold_from(describe_ensemble("mood", Path("spec"), "mood"), Path("spec"), force=True)


@pytest.mark.full
def test_ensemble_of_an_encoder(here: Path) -> None:
    """One vector per text; how tokens are pooled is the directory's choice, or to be checked."""
    write_text_encoder(here / "words")
    scaffold_from(describe_ensemble("words", here, None), here, force=False)
    spec: Spec = load_spec(here / "repogen.yaml")
    assert list(spec.models) == ["words_tokenizer", "words_encoder", "words_pooling", "words"]
    assert spec.models["words_pooling"].inputs["last_hidden_state"].shape == ("batch", "sequence", 8)
    assert list(spec.models["words_pooling"].declared_outputs) == ["embedding"]
    assert "CHECK pooling.py" in (here / "repogen.yaml").read_text()

    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (here / "words" / "1_Pooling").mkdir()
    (here / "words" / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (here / "words" / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Normalize"}]))
    (here / "first").mkdir()
    description = describe_ensemble("words", here / "first", None)
    assert "embedding = vectors[:, 0]" in description.files["pooling.py"]
    assert "np.linalg.norm" in description.files["pooling.py"]
    assert [line for model in description.models for line in model.comments if "CHECK" in line] == []


def test_pooling_that_is_not_supported(here: Path) -> None:
    """It is named."""
    write_text_encoder(here / "words")
    (here / "words" / "1_Pooling").mkdir()
    (here / "words" / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": false}')
    with pytest.raises(SpecError, match=r"1_Pooling/config\.json does not use pooling_mode_mean_tokens"):
        describe_ensemble("words", here, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("architecture", r"is not one: its architecture is BertForMaskedLM\\n  hint: none$"),
        ("tokenizer", "has no tokenizer.json"),
        ("config", "has no config.json"),
    ],
)
def test_other_directories(here: Path, change: str, message: str) -> None:
    """Nothing is loaded."""
    (here / "m").mkdir()
    architecture = "BertForMaskedLM\n  hint: none" if change == "architecture" else "BertForSequenceClassification"
    if change != "config":
        config = {"model_type": "bert", "architectures": [architecture]}
        (here / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SpecError, match=message):
        describe_ensemble("m", here, None)
