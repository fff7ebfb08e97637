"""Inputs to start with: valid files, and hostile ones that readers once failed on."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import Manifest, ModelConfig, Provenance, StagedVersion
from repogen.repository.manifest import manifest_to_json

# Imports are in the functions: each target imports only what its reader needs.
# ruff: noqa: PLC0415

CORPUS = Path(__file__).with_name("corpus")
_ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
"""
GOLDEN_JSON = json.dumps({
    "schema": 1,
    "cases": [{
        "name": "batch=2", "batch": 2, "inputs": [{"name": "x", "key": "0.in.0"}],
        "outputs": [{"name": "y", "key": "0.out.0"}],
    }],
    "tolerances": {"y": {"rtol": 0.001, "atol": 1e-05}},
})  # fmt: skip


def corpus(folder: str) -> list[bytes]:
    """Return the files of a folder of the corpus."""
    return [path.read_bytes() for path in sorted((CORPUS / folder).iterdir())]


def manifest() -> Manifest:
    """Return the manifest of a model."""
    signature = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "float32", ("batch", 3)),))
    provenance = Provenance({"torch": "2"}, "", "", {"spec": "0"}, "24.10", "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
    return Manifest("m", 8, signature, (FileRecord("model.onnx", "0" * 64, 1),), provenance)


def staged_version(repository: Path) -> StagedVersion:
    """Return a staged version of the model."""
    return StagedVersion("m", repository, 1, ModelConfig("m", CONFIG, 8, manifest().signature), manifest())


def write_model(repository: Path, name: str) -> Path:
    """Write a model with one version; return its directory."""
    model = repository / name
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG.replace('"m"', f'"{name}"'), encoding="utf-8")
    (model / "1" / "config.pbtxt").write_text(CONFIG.replace('"m"', f'"{name}"'), encoding="utf-8")
    (model / "1" / "model.onnx").write_bytes(onnx_files()[0])
    (model / "1" / "manifest.json").write_text(manifest_to_json(manifest()), encoding="utf-8")
    return model


def specs() -> list[bytes]:
    """Return specs."""
    return [*corpus("spec"), *(path.read_bytes() for path in sorted((_ROOT / "examples").glob("*/repogen.yaml")))]


def configs() -> list[bytes]:
    """Return texts of config.pbtxt."""
    return [
        CONFIG.encode(),
        *corpus("config"),
        (_ROOT / "model_repository" / "digits_cnn" / "config.pbtxt").read_bytes(),
    ]


def records() -> list[bytes]:
    """Return manifests, golden cases, owners and journals."""
    owner = b'{"schema": 1, "kind": "synced", "aliases": ["champion"]}'
    journal = b'{"before": "0", "after": "1"}'
    return [manifest_to_json(manifest()).encode(), GOLDEN_JSON.encode(), owner, journal, *corpus("records")]


def golden_arrays() -> bytes:
    """Return the arrays of ``GOLDEN_JSON``."""
    import numpy as np

    return _npz({"0.in.0": np.ones((2, 4), np.float32), "0.out.0": np.ones((2, 3), np.float32)})


def arrays() -> list[bytes]:
    """Return ``.npz`` files."""
    import numpy as np

    rows = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "s": np.array(["a", "b"])}
    packed = {"0.in.0": np.frombuffer(b"ab", np.uint8), "0.in.0.ends": np.array([1, 2])}
    compressed = io.BytesIO()
    np.savez_compressed(compressed, x=np.zeros((100, 4), np.float32))
    return [golden_arrays(), _npz(rows), _npz(packed), compressed.getvalue(), b"", b"PK\x05\x06" + bytes(18)]


def _npz(arrays: dict[str, Any]) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def onnx_files() -> list[bytes]:
    """Return ONNX files."""
    from onnx import TensorProto, helper

    from tests.support import graphs

    external = graphs.matmul()
    weight = external.graph.initializer[0]
    weight.data_location = TensorProto.EXTERNAL
    weight.ClearField("raw_data")
    for key, value in (("location", "model.onnx.data"), ("offset", "0"), ("length", "48")):
        weight.external_data.add(key=key, value=value)
    huge = graphs.matmul()
    huge.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**40
    models = [graphs.matmul(), graphs.lookup(), external, huge, helper.make_model(helper.make_graph([], "g", [], []))]
    return [bytes(model.SerializeToString()) for model in models]


def mlmodels() -> list[bytes]:
    """Return files MLmodel."""
    return corpus("mlmodel")


def tags() -> list[bytes]:
    """Return tags of a registry."""
    return corpus("registry")


def safetensors() -> list[bytes]:
    """Return safetensors files."""
    import numpy as np
    from safetensors.numpy import save

    arrays: dict[str, Any] = {
        "w": np.ones((2, 3), np.float32),
        "b": np.zeros((0, 2), np.int64),
        "s": np.array(1, np.float16),
    }
    return [save(arrays), save({}), save(arrays, {"format": "pt"})]


def weights() -> list[bytes]:
    """Return files of ``torch.save``."""
    import torch

    state = {"w": torch.ones(2, 3), "b": torch.zeros(0), "n": torch.tensor(1, dtype=torch.int64)}
    nested = {"state_dict": state, "epoch": 3}
    return [*(_saved(value, zipped=True) for value in (state, nested)), _saved(state, zipped=False)]


def _saved(value: object, *, zipped: bool) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def programs() -> list[bytes]:
    """Return ``.pt2`` files."""
    import torch

    batch = torch.export.Dim("batch", min=1, max=8)
    buffer = io.BytesIO()
    with torch.no_grad():
        program = torch.export.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, buffer)
    return [buffer.getvalue()]


def scripts() -> list[bytes]:
    """Return TorchScript archives."""
    import torch

    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(torch.nn.Linear(4, 2), torch.randn(3, 4)), buffer)  # type: ignore[no-untyped-call]
    return [buffer.getvalue()]


def checkpoint_files() -> dict[str, bytes]:
    """Return the files of a small transformers model."""
    import tempfile

    from tests.unit.source import checkpoints

    with tempfile.TemporaryDirectory() as folder:
        directory = checkpoints.save("text-classification", Path(folder))
        return {path.name: path.read_bytes() for path in directory.iterdir()}


def checkpoint_configs() -> list[bytes]:
    """Return texts of config.json."""
    return [checkpoint_files()["config.json"]]


def checkpoint_companions() -> list[bytes]:
    """Return the other files of checkpoints."""
    return corpus("huggingface")


def texts() -> list[bytes]:
    """Return Python code, class names and requirements."""
    return corpus("text")


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()
