"""A Python step with packed packages: built, served and synced without its packages in the server's environment."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from repogen.repository.manifest import damaged_files, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Project

SPEC = """\
models:
  digest:
    source: {kind: python, path: digest.py}
    inputs: {text: {dtype: string, shape: [batch, 1]}}
    outputs: {digest: {dtype: int64, shape: [batch, 1]}}
    examples: examples.py:texts
    dims: {batch: {max: 4}}
"""
ENSEMBLE = """\
  wrapped:
    source:
      kind: ensemble
      steps: [{model: digest, inputs: {text: text}, outputs: {digest: digest}}]
    outputs: [digest]
"""
# The native extension of msgpack; the package also has a fallback in Python.
CODE = """\
import numpy as np
import triton_python_backend_utils as pb
from msgpack._cmsgpack import Packer


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(request, "text").as_numpy()) for request in requests]

    def answer(self, texts):
        rows = [[sum(Packer().pack(text))] for text in texts[:, 0]]
        return pb.InferenceResponse([pb.Tensor("digest", np.array(rows, dtype=np.int64))])
"""
EXAMPLES = """\
def texts(batch, seed):
    return {"text": [[f"{seed}-{row}"] for row in range(batch)]}
"""


@pytest.mark.full
def test_packed_step_serves_where_its_packages_are_missing(tmp_path: Path, project_at: type[Project]) -> None:
    """Without packing, the server lacks the package. Packed, it is served, reproducible, described, and synced."""
    for name, text in {"repogen.yaml": SPEC, "digest.py": CODE, "examples.py": EXAMPLES}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = project_at(tmp_path)
    run = project.run("build")
    assert run.returncode == 6
    assert "No module named 'msgpack'" in run.stdout

    pin = f"msgpack=={importlib.metadata.version('msgpack')}"
    project.edit("path: digest.py}", f"path: digest.py, requirements: ['{pin}'], pack: true}}")
    project.spec.write_text(
        project.spec.read_text(encoding="utf-8") + ENSEMBLE + "mlflow: {tracking_uri: 'sqlite:///mlflow.db'}\n", "utf-8"
    )
    run = project.run("build", "--json")
    assert run.returncode == 0, run.stderr
    reports = {model["name"]: model for model in json.loads(run.stdout)["models"]}
    assert {report["status"] for report in reports.values()} == {"published"}
    assert all(report["smoke"]["passed"] for report in reports.values())
    (note,) = (note for note in reports["digest"]["notes"] if note.startswith("packed "))
    assert pin in note
    assert " MB: " in note

    version = project.repository / "digest" / "1"
    manifest = read_manifest(version)
    assert damaged_files(version, manifest) == ()
    assert (version / "packed_model.py").read_text(encoding="utf-8") == CODE
    assert not (version / "requirements.txt").exists()
    assert any(file.path.startswith("packages/") and file.path.endswith(".so") for file in manifest.files)
    sbom = json.loads((version / "sbom.cdx.json").read_text(encoding="utf-8"))
    packed = {
        component["name"]: component
        for component in sbom["components"]
        if any(entry["name"] == "repogen:packed" for entry in component.get("properties", ()))
    }
    assert "msgpack" in packed
    assert packed["msgpack"]["licenses"]

    content = {path: path.read_bytes() for path in version.rglob("*") if path.is_file()}
    assert not [path for path, data in content.items() if b"pypi.org/simple" in data or b"pythonhosted" in data]
    run = project.run("build", "--json", "--force", "--no-track", "--repository", "again", "--model", "digest")
    assert run.returncode == 0, run.stderr
    assert read_manifest(tmp_path / "again" / "digest" / "1").content_sha256 == manifest.content_sha256

    client = f"mlflow.MlflowClient('sqlite:///{tmp_path / 'mlflow.db'}')"
    code = f"import mlflow; {client}.set_registered_model_alias('digest', 'champion', '1')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
    tracking = ("--tracking-uri", "sqlite:///mlflow.db")
    run = project.run("sync", "--repository", "followed", "--model", "digest", "--alias", "champion", *tracking)
    assert run.returncode == 0, run.stderr
    assert read_manifest(tmp_path / "followed" / "digest" / "1").content_sha256 == manifest.content_sha256
    assert project.run("smoke", "followed").returncode == 0
    assert project.run("check", "followed", "--strict").returncode == 0
    assert not project.temporary()
