"""The version directory as a model of MLflow's onnx flavor: our own bytes, with what MLflow needs beside them.

``mlflow.onnx.log_model`` would write the graph again, and its weights under a random name: another model than the one
that was verified. So its files are written here, around the staged ones.
Source of the format: mlflow.onnx.save_model and mlflow.models.Model of MLflow 3.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import yaml

from repogen.artifacts.file_names import MANIFEST_FILE, MODEL_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tensors import Array, TensorSpec
    from repogen.artifacts.versions import StagedVersion

_EXAMPLE = "input_example.json"
_REQUIREMENTS = "requirements.txt"
_PYTHON_ENV = "python_env.yaml"
_NEEDED = ("onnx", "onnxruntime", "numpy")
_EXAMPLE_INFO = {"artifact_path": _EXAMPLE, "type": "ndarray"}
# MLflow shows an input example; one of a large image would be a large page.
_MOST_NUMBERS = 10_000


def write_model(staged: StagedVersion, run_id: str, directory: Path) -> None:
    """Lay out a model directory: every file of the staged version, and MLmodel and environment files beside them.

    Args:
        staged: The version.
        run_id: The run that the model belongs to.
        directory: Where to; must be empty, on the staged version's filesystem.
    """
    manifest = staged.manifest
    for name in (*(record.path for record in manifest.files), MANIFEST_FILE):
        _link(staged.version_dir / name, directory / name)
    example = _example(staged)
    if example is not None:
        (directory / _EXAMPLE).write_text(json.dumps(example), encoding="utf-8")
    if _has_graph(staged):
        _environment(manifest.provenance.tools, directory)
    _mlmodel(staged, run_id, example is not None).save(str(directory / "MLmodel"))


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a filesystem without hard links
        shutil.copyfile(source, target)


def _mlmodel(staged: StagedVersion, run_id: str, has_example: bool) -> Any:  # noqa: ANN401, FBT001 - mlflow's own class
    from mlflow.models import Model, ModelSignature  # noqa: PLC0415 - a tracked build's only
    from mlflow.types import Schema  # noqa: PLC0415 - the same

    tools, signature = staged.manifest.provenance.tools, staged.manifest.signature
    model = Model(
        artifact_path="model",
        run_id=run_id,
        signature=ModelSignature(
            inputs=Schema([_tensor(spec) for spec in signature.inputs]),
            outputs=Schema([_tensor(spec) for spec in signature.outputs]),
        ),
        saved_input_example_info=_EXAMPLE_INFO if has_example else None,
    )
    if not _has_graph(staged):  # code for Triton's Python backend, an ensemble: MLflow keeps it, and can't run it
        model.add_flavor("repogen", kind=staged.manifest.provenance.exporter)
        return model
    model.add_flavor(
        "python_function",
        loader_module="mlflow.onnx",
        data=MODEL_FILE,
        python_version=tools.get("python", ""),
        env={"virtualenv": _PYTHON_ENV},
    )
    model.add_flavor(
        "onnx", onnx_version=tools.get("onnx", ""), data=MODEL_FILE, providers=["CPUExecutionProvider"], code=None
    )
    return model


def _has_graph(staged: StagedVersion) -> bool:
    return any(record.path == MODEL_FILE for record in staged.manifest.files)


def _tensor(spec: TensorSpec) -> Any:  # noqa: ANN401 - as above
    import numpy as np  # noqa: PLC0415 - an untracked build's parent does without
    from mlflow.types import TensorSpec as Tensor  # noqa: PLC0415 - as above

    shape = tuple(-1 if isinstance(dim, str) else dim for dim in spec.shape)
    dtype = np.dtype("str" if spec.dtype == "string" else spec.dtype)
    return Tensor(dtype, shape, spec.name)


def _example(staged: StagedVersion) -> dict[str, object] | None:
    """Return the first golden case's inputs by name; None when they are too large to be looked at."""
    import numpy as np  # noqa: PLC0415 - as above

    from repogen.repository.golden import GOLDEN_JSON, GOLDEN_NPZ, golden_from_json, unpacked  # noqa: PLC0415 - the same

    text = (staged.version_dir / GOLDEN_JSON).read_text(encoding="utf-8")
    case = golden_from_json(text, GOLDEN_JSON).cases[0]
    with np.load(staged.version_dir / GOLDEN_NPZ, allow_pickle=False) as arrays:
        inputs = {tensor.name: unpacked(arrays, tensor.key) for tensor in case.inputs}
    if sum(array.size for array in inputs.values()) > _MOST_NUMBERS:
        return None
    try:
        return {
            name: (np.strings.decode(array.astype("S")) if array.dtype == object else array).tolist()
            for name, array in inputs.items()
        }
    except UnicodeDecodeError:
        return None  # bytes of an image, say


def _plain(array: Array) -> object:
    """Return an array as lists of numbers, or of text."""
    if array.dtype.kind != "O":
        return array.tolist()
    items: list[bytes] = array.ravel().tolist()
    texts = [item.decode() for item in items]
    for size in reversed(array.shape[1:]):
        texts = [texts[at : at + size] for at in range(0, len(texts), size)]  # type: ignore[misc] # nested by the shape
    return texts


def _environment(tools: dict[str, str], directory: Path) -> None:
    import mlflow  # noqa: PLC0415 - as above

    needed = [f"mlflow=={mlflow.__version__}", *(f"{name}=={tools[name]}" for name in _NEEDED if name in tools)]
    (directory / _REQUIREMENTS).write_text("\n".join(needed) + "\n", encoding="utf-8")
    python_env = {"python": tools.get("python", ""), "dependencies": [f"-r {_REQUIREMENTS}"]}
    (directory / _PYTHON_ENV).write_text(yaml.safe_dump(python_env, sort_keys=False), encoding="utf-8")
