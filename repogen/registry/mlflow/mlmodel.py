"""Lays out a version as a model of MLflow's onnx flavor: the staged files, and the files that MLflow needs.

``mlflow.onnx.log_model`` would write the graph again, with its weights under a random name: not the files that were
verified. This module therefore writes the files of the flavor around the staged ones.
Source of the format: mlflow.onnx.save_model and mlflow.models.Model of MLflow 3.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import yaml

from repogen.artifacts.file_names import ATTESTATION_FILES, MANIFEST_FILE, MODEL_FILE
from repogen.artifacts.tensors import DTYPES
from repogen.registry.mlflow import library
from repogen.repository.golden import first_golden_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.tensors import TensorSpec
    from repogen.artifacts.versions import StagedVersion

_EXAMPLE = "input_example.json"
_REQUIREMENTS = "requirements.txt"
_PYTHON_ENV = "python_env.yaml"
_REQUIRED = ("onnx", "onnxruntime", "numpy")
_EXAMPLE_INFO = {"artifact_path": _EXAMPLE, "type": "ndarray"}
# MLflow displays an input example; that of a large image would be a large page.
_MAX_NUMBERS = 10_000


def write_model(staged: StagedVersion, run_id: str, model_id: str, directory: Path) -> None:
    """Write a model directory: every file of the staged version, MLmodel, and the files of its environment.

    Args:
        staged: The version.
        run_id: The run that the model belongs to.
        model_id: The logged model.
        directory: An empty directory on the staged version's filesystem.
    """
    manifest = staged.manifest
    described = (name for name in ATTESTATION_FILES if (staged.version_dir / name).is_file())
    for name in (*(record.path for record in manifest.files), *described, MANIFEST_FILE):
        _link(staged.version_dir / name, directory / name)
    example = _example(staged)
    if example is not None:
        (directory / _EXAMPLE).write_text(json.dumps(example), encoding="utf-8")
    if _has_graph(staged):
        _environment(manifest.provenance.tools, directory)
    _mlmodel(staged, run_id, model_id, has_example=example is not None).save(str(directory / "MLmodel"))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)  # packed packages have directories
    try:
        os.link(source, target)
    except OSError:  # a filesystem without hard links
        shutil.copyfile(source, target)


def _mlmodel(staged: StagedVersion, run_id: str, model_id: str, *, has_example: bool) -> library.Model:
    tools, signature = staged.manifest.provenance.tools, staged.manifest.signature
    model = library.Model(
        artifact_path="model",
        run_id=run_id,
        model_id=model_id,
        signature=library.ModelSignature(
            inputs=library.Schema([_tensor(spec) for spec in signature.inputs]),
            outputs=library.Schema([_tensor(spec) for spec in signature.outputs]),
        ),
        saved_input_example_info=_EXAMPLE_INFO if has_example else None,
    )
    if not _has_graph(staged):  # Python code or an ensemble: MLflow stores it and cannot run it
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


def _tensor(spec: TensorSpec) -> library.TensorSpec:
    shape = tuple(-1 if isinstance(dim, str) else dim for dim in spec.shape)
    dtype = np.dtype("str" if spec.dtype == "string" else DTYPES[spec.dtype].numpy)
    return library.TensorSpec(dtype, shape, spec.name)


def _example(staged: StagedVersion) -> dict[str, object] | None:
    """Return the inputs of the first golden case by name; None if they are too large to display."""
    inputs = first_golden_inputs(staged.version_dir, batched=False) or {}
    if sum(array.size for array in inputs.values()) > _MAX_NUMBERS:
        return None
    try:
        return {
            name: (np.strings.decode(array.astype("S")) if array.dtype == object else array).tolist()
            for name, array in inputs.items()
        }
    except UnicodeDecodeError:
        return None  # for example the bytes of an image


def _environment(tools: dict[str, str], directory: Path) -> None:
    requirements = [
        f"mlflow=={library.mlflow.__version__}",
        *(f"{name}=={tools[name]}" for name in _REQUIRED if name in tools),
    ]
    (directory / _REQUIREMENTS).write_text("\n".join(requirements) + "\n", encoding="utf-8")
    python_env = {"python": tools.get("python", ""), "dependencies": [f"-r {_REQUIREMENTS}"]}
    (directory / _PYTHON_ENV).write_text(yaml.safe_dump(python_env, sort_keys=False), encoding="utf-8")
