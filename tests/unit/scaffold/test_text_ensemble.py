"""`init --from HF_DIRECTORY --ensemble`: the tokenizer, the encoder, the labels, and the ensemble of the three."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.errors import SpecError
from repogen.scaffold.files import describe_ensemble, scaffold_from
from repogen.spec.load import load_spec
from tests.support.text_classifier import write_text_classifier

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("architecture", "is not one: its architecture is BertModel"),
        ("tokenizer", "has no tokenizer.json"),
        ("config", "has no config.json"),
    ],
)
def test_other_directories(here: Path, change: str, message: str) -> None:
    """Nothing is loaded."""
    (here / "m").mkdir()
    architecture = "BertModel" if change == "architecture" else "BertForSequenceClassification"
    if change != "config":
        config = {"model_type": "bert", "architectures": [architecture]}
        (here / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SpecError, match=message):
        describe_ensemble("m", here, None)
