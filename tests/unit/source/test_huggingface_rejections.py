"""Rejected transformers directories; no code in them runs."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import dynamic_module_utils

from repogen.errors import SourceError
from repogen.source.huggingface.checkpoint import open_checkpoint
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec
from tests.support.swapping import swap_when_opened

from .checkpoints import save

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = "model.safetensors"


def rejection(root: Path, **spec: Any) -> SourceError:
    """Return the error of loading the directory ``model``."""
    source = {"kind": "huggingface", "model": "model", **spec.pop("source", {})}
    with pytest.raises(SourceError) as caught:
        load_source(ModelSpec.model_validate({"source": source, **spec}), root)
    return caught.value


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the directory of a text classifier."""
    return save("text-classification", tmp_path / "model")


def edit(directory: Path, **changes: Any) -> None:
    """Change keys of ``config.json``."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(directory: Path, change: Any) -> None:
    """Apply a function to the state dict, which it changes in place."""
    state = load_file(directory / WEIGHTS)
    change(state)
    save_file(state, directory / WEIGHTS, metadata={"format": "pt"})


def test_missing_weights_are_listed(model: Path, tmp_path: Path) -> None:
    """The names of the missing weights are in the message."""
    edit_weights(model, lambda state: state.pop("classifier.weight"))
    error = rejection(tmp_path)
    assert error.code == "source.hf-weights"
    assert "missing: classifier.weight" in error.message


def test_unexpected_weights_are_listed(model: Path, tmp_path: Path) -> None:
    """A tensor that no head of the architecture has belongs to another model."""
    edit_weights(model, lambda state: state.update({"extra.weight": torch.zeros(2)}))
    error = rejection(tmp_path)
    assert (error.code, "unexpected: extra.weight" in error.message) == ("source.hf-weights", True)


def test_extra_layer_is_rejected(model: Path, tmp_path: Path) -> None:
    """A configuration with fewer layers than the file would silently load a shorter model."""
    edit(model, num_hidden_layers=1)
    error = rejection(tmp_path)
    assert (error.code, "unexpected: bert.encoder.layer.1." in error.message) == ("source.hf-weights", True)


def test_weights_of_another_shape_are_listed(model: Path, tmp_path: Path) -> None:
    """The message has both shapes."""
    edit_weights(model, lambda state: state.update({"classifier.bias": torch.zeros(7)}))
    error = rejection(tmp_path)
    assert (error.code, "classifier.bias: file [7], model [3]" in error.message) == ("source.hf-weights", True)


@pytest.mark.usefixtures("model")
def test_untrained_head_is_rejected(tmp_path: Path) -> None:
    """The task in the spec needs weights that the checkpoint does not have."""
    error = rejection(tmp_path, source={"task": "fill-mask"})
    assert (error.code, "missing: cls.predictions" in error.message) == ("source.hf-weights", True)


def test_remote_code_is_not_run_unless_trusted(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is rejected before transformers reads it; the same code runs once it is trusted."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", "/proc/shared")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))  # as for a worker that a fork server forked
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
    error = rejection(tmp_path)
    assert (error.code, (tmp_path / "ran").exists()) == ("source.hf-remote-code", False)
    trusted = {"kind": "huggingface", "model": "model", "trust_remote_code": True}
    source = load_source(ModelSpec.model_validate({"source": trusted}), tmp_path)
    assert ((tmp_path / "ran").exists(), [spec.name for spec in source.signature.outputs]) == (True, ["logits"])
    assert any("Python code of model was run" in note for note in source.notes)
    assert "modeling_own.py" in {path.name for path in source.files}
    assert (tmp_path / "modules" / "transformers_modules").is_dir()
    tmp_path.chmod(0o1777)
    for mode, owner in ((0o1777, -1), (0o755, 65534)):
        os.chown(model, owner, owner)
        model.chmod(mode)
        with pytest.raises(
            SourceError, match="contains or names Python code, but belongs to another user, or"
        ) as caught:
            load_source(ModelSpec.model_validate({"source": trusted}), tmp_path)
        assert caught.value.code == "working-directory.foreign"


@pytest.mark.parametrize(
    "change", ["code directory", "sticky group", "owner", "file owner", "file mode", "link", "config"]
)
def test_remote_code_in_a_directory_below_that_others_can_change(model: Path, tmp_path: Path, change: str) -> None:
    """auto_map may name code in a directory of the model, whose modes and owners are examined as well."""
    code, own = model / "code", tmp_path / "own"
    code.mkdir()
    own.mkdir()
    file = code / "modeling_own.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    edit(model, auto_map={"AutoModelForSequenceClassification": ["code/modeling_own.OwnModel"]}, model_type="own")
    match change:
        case "code directory":
            code.chmod(0o777)
        case "sticky group":
            os.chown(code, -1, 65534)
            code.chmod(0o1775)
        case "owner":
            os.chown(code, 65534, -1)
        case "file owner":
            os.chown(file, 65534, -1)
        case "file mode":
            file.chmod(0o666)
        case "config":  # it names the code
            (model / "config.json").chmod(0o666)
        case "link":
            file.rename(own / file.name)
            own.chmod(0o777)
            file.symlink_to(own / file.name)
    trusted = {"kind": "huggingface", "model": "model", "trust_remote_code": True}
    with pytest.raises(SourceError, match="other users can add files to it or replace it") as caught:
        load_source(ModelSpec.model_validate({"source": trusted}), tmp_path)
    assert (caught.value.code, (tmp_path / "ran").exists()) == ("working-directory.foreign", False)


@pytest.mark.parametrize("case", ["parent", "owner of the parent", "link", "file", "other repository"])
def test_remote_code_that_others_can_replace_is_not_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Through a directory above, the user's own link, a link to a file, or a repository that auto_map names."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod({"parent": 0o777, "owner of the parent": 0o755}.get(case, 0o1777))
    os.chown(shared, 65534 if case == "owner of the parent" else -1, -1)
    spec_root = tmp_path / "spec"
    spec_root.mkdir()
    code, prefix = "modeling_own.py", "a/b--" if case == "other repository" else ""
    (model / code).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    edit(model, auto_map={"AutoModelForSequenceClassification": f"{prefix}modeling_own.OwnModel"}, model_type="own")
    if case in {"parent", "owner of the parent", "link"}:
        model.rename(shared / "model")
        os.chown(shared / "model", 65534 if case == "link" else -1, -1)
        (spec_root / "model").symlink_to(shared / "model")
    else:
        model.rename(spec_root / "model")
    if case == "file":
        (spec_root / "model" / code).rename(shared / code)
        os.chown(shared / code, 65534, -1)
        (spec_root / "model" / code).symlink_to(shared / code)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(shared / "hub" if case == "link" else shared))
    trusted = {"kind": "huggingface", "model": "model", "trust_remote_code": True}
    with pytest.raises(SourceError, match="other users can add files to it or replace it") as caught:
        load_source(ModelSpec.model_validate({"source": trusted}), spec_root)
    assert (caught.value.code, (tmp_path / "ran").exists()) == ("working-directory.foreign", False)


@pytest.mark.parametrize("case", ["relative", "absolute", "sticky"])
def test_remote_code_in_a_directory_with_the_name_of_a_repository(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A directory with this name is preferred, and another user could create it in the working directory."""
    working_directory = tmp_path / "shared"
    code = working_directory / "acme" / "code"
    code.mkdir(parents=True)
    (code / "modeling_own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(working_directory)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    if case == "sticky":  # the directory does not exist yet
        working_directory.chmod(0o1777)
        code.rename(tmp_path / "later")
    repository = str(code) if case == "absolute" else "acme/code"
    edit(
        model, auto_map={"AutoModelForSequenceClassification": f"{repository}--modeling_own.OwnModel"}, model_type="own"
    )
    trusted = {"kind": "huggingface", "model": "model", "trust_remote_code": True}
    with pytest.raises(SourceError) as caught:
        load_source(ModelSpec.model_validate({"source": trusted}), tmp_path)
    expected = "working-directory.foreign" if case == "sticky" else "source.hf-files"
    assert (caught.value.code, (tmp_path / "ran").exists()) == (expected, False)


def test_pickled_code_is_not_run(model: Path, tmp_path: Path) -> None:
    """Only tensors are unpickled."""

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (model / WEIGHTS).unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Bomb()}, protocol=2))
    error = rejection(tmp_path)
    assert (error.code, (tmp_path / "ran").exists()) == ("source.weights-unsafe", False)


def test_distributed_checkpoint_is_not_unpickled(model: Path, tmp_path: Path) -> None:
    """The metadata of torch's distributed checkpoints is a pickle, which is never opened."""

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (model / ".metadata").write_bytes(pickle.dumps(Bomb()))
    (model / "__0_0.distcp").write_bytes(b"")
    (model / WEIGHTS).unlink()
    assert (rejection(tmp_path).code, (tmp_path / "ran").exists()) == ("source.hf-files", False)


def test_link_that_replaces_a_file_before_it_is_opened(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may be able to write to the directory."""
    (tmp_path / "secret").write_bytes((model / "config.json").read_bytes())
    swap_when_opened(monkeypatch, model / "config.json", model / "config.json", tmp_path / "secret")
    error = rejection(tmp_path)
    assert (error.code, error.message) == ("source.hf-files", f"config.json cannot be read: leads out of {model}")


@pytest.mark.parametrize("file", [WEIGHTS, "config.json"])
def test_file_that_is_a_link_out_of_the_directory(model: Path, tmp_path: Path, file: str) -> None:
    """A directory that was downloaded could link to any file of the machine."""
    (model / file).rename(tmp_path / file)
    (model / file).symlink_to(tmp_path / file)
    error = rejection(tmp_path)
    assert (error.code, error.message) == ("source.hf-files", f"{file} is a link that leads out of its directory")


def test_truncated_weights(model: Path, tmp_path: Path) -> None:
    """The error has repogen's code instead of the message of safetensors."""
    content = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(content[: len(content) // 2])
    assert rejection(tmp_path).code == "source.weights-unreadable"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: (model / "config.json").unlink(), "model has no config.json"),
        (lambda model: (model / "config.json").write_text("{"), "config.json cannot be read as JSON"),
        (lambda model: (model / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda model: (model / WEIGHTS).unlink(), "model has no weights"),
        (lambda model: edit(model, transformers_weights="../other.safetensors"), "refers to weights outside"),
        (lambda model: edit(model, architectures=3), "config.json is not valid: architectures"),
        (lambda model: (model / "config.json").write_text('{"a":' * 2000), "config.json cannot be read as JSON"),
        (lambda model: edit(model, num_attention_heads="many"), "rejects config.json"),
        (lambda model: edit(model, num_labels=10**9), "num_labels is 1000000000, which is more than 1000000"),
        (lambda model: edit(model, text_config={"num_hidden_layers": 10**6}), "num_hidden_layers is 1000000"),
    ],
)
def test_directory_that_is_not_a_model(damage: Any, message: str, model: Path, tmp_path: Path) -> None:
    """The message has the missing or damaged file."""
    damage(model)
    error = rejection(tmp_path)
    assert (error.code, message in error.message) == ("source.hf-files", True)


def test_index_with_wrong_file_names(model: Path, tmp_path: Path) -> None:
    """A missing shard is listed; a path outside the directory is rejected."""
    (model / WEIGHTS).rename(model / "model-00001-of-00001.safetensors")
    for path, message in (("model-00002-of-00002.safetensors", "which does not exist"), ("../secret", "outside")):
        (model / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"a": path}}))
        error = rejection(tmp_path)
        assert (error.code, message in error.message) == ("source.hf-files", True)


def test_adapter_is_rejected(tmp_path: Path) -> None:
    """The hint explains how to merge it into a full model."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    error = rejection(tmp_path)
    assert (error.code, "merge_and_unload" in error.hint) == ("source.hf-files", True)


def test_quantized_weights_are_rejected(model: Path, tmp_path: Path) -> None:
    """They are rejected before they are loaded."""
    edit(model, quantization_config={"quant_method": "bitsandbytes"})
    assert rejection(tmp_path).code == "source.quantized"


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({}, "text-to-speech", "repogen does not support the task 'text-to-speech'"),
        ({"architectures": ["BertForPreTraining"]}, "auto", "repogen does not support the task of BertForPreTraining"),
        ({"architectures": None}, "auto", "config.json has no architecture"),
        ({"model_type": "brand-new"}, "auto", "model_type 'brand-new' is not supported by transformers"),
        ({}, "depth-estimation", "does not support depth-estimation for bert; it supports: text-classification"),
    ],
)
def test_unsupported_task(changes: Any, task: str, message: str, model: Path, tmp_path: Path) -> None:
    """The message explains which part is unsupported."""
    edit(model, **changes)
    error = rejection(tmp_path, source={"task": task})
    assert (error.code, message in error.message) == ("source.hf-task", True)
    assert re.search(r"source: \{(kind: torch, )?factory: ", error.hint)


@pytest.mark.usefixtures("model")
def test_unknown_dim(tmp_path: Path) -> None:
    """The message lists the dims of the inputs."""
    error = rejection(tmp_path, dims={"length": {"max": 8}})
    assert (error.code, bool(re.search("batch, sequence", error.message))) == ("source.dim-unused", True)


def test_missing_directory(tmp_path: Path) -> None:
    """A path that cannot be a Hub ID is not looked up on the Hub."""
    error = rejection(tmp_path, source={"model": "./nowhere/model"})
    assert (error.code, error.message) == ("source.hf-files", "directory not found: './nowhere/model'")


BUILD = """
from pathlib import Path
from repogen.errors import SourceError
from repogen.source.load import load_source
from repogen.spec.models import ModelSpec

try:
    load_source(ModelSpec.model_validate({"source": {"kind": "huggingface", "model": "model"}}), Path())
except SourceError as error:
    print(error.code, error.message)
"""


@pytest.mark.full
def test_broken_library_is_not_a_bug_of_repogen(tmp_path: Path) -> None:
    """A torchvision that does not match torch fails while transformers imports it."""
    save("image-classification", tmp_path / "model")
    packages = tmp_path / "site-packages"
    files = {
        "torchvision-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.1\n",
        "torchvision/__init__.py": 'raise RuntimeError("operator torchvision::nms does not exist")\n',
    }
    for name, text in files.items():
        (packages / name).parent.mkdir(parents=True)
        (packages / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(packages), *sys.path])}
    process = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert process.stdout.startswith("source.library torchvision cannot be imported: "), process.stderr


@pytest.mark.parametrize("name", ["x" * 300, "é" * 200])
def test_weights_with_a_long_name(model: Path, tmp_path: Path, name: str) -> None:
    """A name that is longer than a file name is reported."""
    (model / WEIGHTS).unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}), encoding="utf-8")
    assert "refers to a file with a name of" in rejection(tmp_path).message


@pytest.mark.parametrize(
    "content", [b"9" * 5000, b"[" * 5000, b'{"model_type": "\\ud800"}', b"\xff", b" " * (2**24 + 1)]
)
def test_hostile_configuration(model: Path, tmp_path: Path, content: bytes) -> None:
    """Numbers with too many digits, deep nesting, lone surrogates, other encodings, files that are too large."""
    (model / "config.json").write_bytes(content)
    assert rejection(tmp_path).code == "source.hf-files"


def test_model_card_of_empty_lines(model: Path) -> None:
    """The front matter is searched in time that grows with the length of the card."""
    (model / "README.md").write_text("---" + "\n" * 2**20, encoding="utf-8")
    assert open_checkpoint(model, "m", trusted=False, local=True).pipeline_tag == ""


def test_file_with_very_many_values(model: Path, tmp_path: Path) -> None:
    """Each value of a wrong type would need a kilobyte of memory."""
    edit(model, more=[0] * 500_001)
    assert "config.json has more than 500,000 values" in rejection(tmp_path).message


def test_keys_under_other_names(model: Path, tmp_path: Path) -> None:
    """A configuration that renames a key to that of a kernel on the Hub is built without it."""
    edit(model, attribute_map={"zzz": "_attn_implementation_internal"}, zzz="evil/kernel")
    spec = {"source": {"kind": "huggingface", "model": "model"}}
    assert load_source(ModelSpec.model_validate(spec), tmp_path).signature.inputs


def test_configuration_that_names_a_model_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is sent: it would contain the user's token, and nobody pinned that model."""
    hosts: list[str] = []

    def unreachable(host: str, *_arguments: object, **_options: object) -> None:
        hosts.append(host)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    directory = save("image-classification", tmp_path / "model")
    settings = {"backbone": "attacker/beacon", "use_timm_backbone": False, "architectures": ["ConditionalDetrModel"]}
    edit(directory, model_type="conditional_detr", **settings)
    error = rejection(tmp_path, source={"task": "feature-extraction"})
    assert hosts == []
    assert error.code == "source.hf-files"
    assert "attacker/beacon" in error.message
