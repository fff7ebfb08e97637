"""What a directory of transformers is refused for, and that nothing of it was run."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import dynamic_module_utils

from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

from .checkpoints import save

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = "model.safetensors"


def refused(root: Path, **spec: Any) -> SourceError:
    """Return the error of the directory ``model``, which must be refused."""
    source = {"kind": "huggingface", "model": "model", **spec.pop("source", {})}
    with pytest.raises(SourceError) as caught:
        load_source(ModelSpec.model_validate({"source": source, **spec}), root)
    return caught.value


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the directory of a text classifier."""
    return save("text-classification", tmp_path / "model")


def edit(directory: Path, **changes: Any) -> None:
    """Change ``config.json``."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def reweigh(directory: Path, change: Any) -> None:
    """Change the state dict, in place."""
    state = load_file(directory / WEIGHTS)
    change(state)
    save_file(state, directory / WEIGHTS, metadata={"format": "pt"})


def test_missing_weights_are_named(model: Path, tmp_path: Path) -> None:
    """Transformers would draw them at random."""
    reweigh(model, lambda state: state.pop("classifier.weight"))
    error = refused(tmp_path)
    assert error.code == "source.hf-weights"
    assert "missing: classifier.weight" in error.message


def test_unexpected_weights_are_named(model: Path, tmp_path: Path) -> None:
    """A tensor that no head of the architecture has is of another model."""
    reweigh(model, lambda state: state.update({"extra.weight": torch.zeros(2)}))
    error = refused(tmp_path)
    assert (error.code, "unexpected: extra.weight" in error.message) == ("source.hf-weights", True)


def test_a_layer_too_many_is_another_model(model: Path, tmp_path: Path) -> None:
    """A configuration with fewer layers than the file would silently be a shorter model."""
    edit(model, num_hidden_layers=1)
    error = refused(tmp_path)
    assert (error.code, "unexpected: bert.encoder.layer.1." in error.message) == ("source.hf-weights", True)


def test_weights_of_another_shape_are_named(model: Path, tmp_path: Path) -> None:
    """Both shapes are said."""
    reweigh(model, lambda state: state.update({"classifier.bias": torch.zeros(7)}))
    error = refused(tmp_path)
    assert (error.code, "classifier.bias: file [7], model [3]" in error.message) == ("source.hf-weights", True)


@pytest.mark.usefixtures("model")
def test_a_head_that_was_never_trained_is_refused(tmp_path: Path) -> None:
    """The task of the spec needs weights that the checkpoint has not."""
    error = refused(tmp_path, source={"task": "fill-mask"})
    assert (error.code, "missing: cls.predictions" in error.message) == ("source.hf-weights", True)


def test_code_beside_the_weights_is_not_run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before transformers sees the directory; the same code runs once it is trusted."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (model / "modeling_own.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'ran')!r}).write_text('ran')\n"
        "from transformers import BertConfig, BertForSequenceClassification\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n"
        "class OwnModel(BertForSequenceClassification):\n    config_class = OwnConfig\n"
    )
    auto = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForSequenceClassification": "modeling_own.OwnModel"}
    edit(model, auto_map=auto, model_type="own", architectures=["OwnModel"])
    error = refused(tmp_path)
    assert (error.code, (tmp_path / "ran").exists()) == ("source.hf-remote-code", False)
    trusting = {"kind": "huggingface", "model": "model", "trust_remote_code": True}
    source = load_source(ModelSpec.model_validate({"source": trusting}), tmp_path)
    assert ((tmp_path / "ran").exists(), [spec.name for spec in source.signature.outputs]) == (True, ["logits"])
    assert any("Python code of model was run" in note for note in source.notes)
    assert "modeling_own.py" in {path.name for path in source.files}


def test_a_pickle_bomb_does_not_go_off(model: Path, tmp_path: Path) -> None:
    """Only tensors are unpickled."""

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (model / WEIGHTS).unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Bomb()}, protocol=2))
    error = refused(tmp_path)
    assert (error.code, (tmp_path / "ran").exists()) == ("source.weights-unsafe", False)


def test_a_distributed_checkpoint_is_not_unpickled(model: Path, tmp_path: Path) -> None:
    """The metadata of torch's distributed checkpoints is a pickle; nobody opens it."""

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (model / ".metadata").write_bytes(pickle.dumps(Bomb()))
    (model / "__0_0.distcp").write_bytes(b"")
    (model / WEIGHTS).unlink()
    assert (refused(tmp_path).code, (tmp_path / "ran").exists()) == ("source.hf-files", False)


def test_a_truncated_file_is_said_to_be_one(model: Path, tmp_path: Path) -> None:
    """Not what safetensors says of its header."""
    whole = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    assert refused(tmp_path).code == "source.weights-unreadable"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda model: (model / "config.json").unlink(), "model has no config.json"),
        (lambda model: (model / "config.json").write_text("{"), "config.json cannot be read as JSON"),
        (lambda model: (model / "config.json").write_text("[]"), "config.json holds no JSON object"),
        (lambda model: (model / WEIGHTS).unlink(), "model has no weights"),
        (lambda model: edit(model, transformers_weights="../other.safetensors"), "names weights outside"),
        (lambda model: edit(model, num_attention_heads="many"), "does not take config.json"),
    ],
)
def test_a_directory_that_is_no_model(spoil: Any, said: str, model: Path, tmp_path: Path) -> None:
    """What is missing or broken is named."""
    spoil(model)
    error = refused(tmp_path)
    assert (error.code, said in error.message) == ("source.hf-files", True)


def test_an_index_names_files_beside_it(model: Path, tmp_path: Path) -> None:
    """A shard that is not there is named; one elsewhere is refused."""
    (model / WEIGHTS).rename(model / "model-00001-of-00001.safetensors")
    for place, said in (("model-00002-of-00002.safetensors", "which is not there"), ("../secret", "outside")):
        (model / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"a": place}}))
        error = refused(tmp_path)
        assert (error.code, said in error.message) == ("source.hf-files", True)


def test_an_adapter_is_not_a_model(tmp_path: Path) -> None:
    """The hint says how it becomes one."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    error = refused(tmp_path)
    assert (error.code, "merge_and_unload" in error.hint) == ("source.hf-files", True)


def test_quantized_weights_are_refused(model: Path, tmp_path: Path) -> None:
    """Before anything tries to load them."""
    edit(model, quantization_config={"quant_method": "bitsandbytes"})
    assert refused(tmp_path).code == "source.quantized"


@pytest.mark.parametrize(
    ("changes", "task", "said"),
    [
        ({}, "text-to-speech", "task 'text-to-speech' is none that repogen knows"),
        ({"architectures": ["BertForPreTraining"]}, "auto", "the task of BertForPreTraining is none"),
        ({"architectures": None}, "auto", "config.json names no architecture"),
        ({"model_type": "brand-new"}, "auto", "model_type 'brand-new' is unknown to transformers"),
        ({}, "depth-estimation", "has no depth-estimation for bert; it has: text-classification"),
    ],
)
def test_a_task_that_is_not_known(changes: Any, task: str, said: str, model: Path, tmp_path: Path) -> None:
    """The known ones are named."""
    edit(model, **changes)
    error = refused(tmp_path, source={"task": task})
    assert (error.code, said in error.message) == ("source.hf-task", True)


@pytest.mark.usefixtures("model")
def test_a_dim_that_no_input_has(tmp_path: Path) -> None:
    """The ones that there are are named."""
    error = refused(tmp_path, dims={"length": {"max": 8}})
    assert (error.code, bool(re.search("batch, sequence", error.message))) == ("source.dim-unused", True)


def test_no_such_directory(tmp_path: Path) -> None:
    """What can't be a name on the hub is not looked for there."""
    error = refused(tmp_path, source={"model": "./nowhere/model"})
    assert (error.code, error.message) == ("source.hf-files", "there is no directory './nowhere/model'")
