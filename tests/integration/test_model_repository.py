"""The committed model_repository/ is what the digits example builds, and a real Triton serves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.progress import Silent
from repogen.build.fingerprint import changes
from repogen.build.pipeline import BuildOptions, build
from repogen.repository.layout import latest_version
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.ownership import RepositoryKind, RepositoryOwner, read_owner
from repogen.spec.load import load_spec

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples" / "digits" / "repogen.yaml"
MODEL = ROOT / "model_repository" / "digits_cnn"


def is_expected_change(reason: str) -> bool:
    """Return whether only repogen's code changed, or the local version of torch (`torch 2.13.0+cpu -> 2.13.0`)."""
    name, old, _, new = (reason.split() * 4)[:4]
    return name == "repogen" or (name == "torch" and old.partition("+")[0] == new.partition("+")[0])


def test_committed_version_is_intact_and_up_to_date() -> None:
    """Its files match its manifest, and its inputs have not changed; if not, run `make model_repository`."""
    assert latest_version(MODEL) == 1
    manifest = read_manifest(MODEL / "1")
    reasons = changes(manifest.provenance.fingerprint, load_spec(SPEC), "digits_cnn")
    none: list[str] = []
    assert none == [reason for reason in reasons if not is_expected_change(reason)]
    assert damaged_files(MODEL / "1", manifest) == ()
    assert (MODEL / CONFIG_FILE).read_bytes() == (MODEL / "1" / CONFIG_FILE).read_bytes()
    assert RepositoryOwner(RepositoryKind.BUILT) == read_owner(MODEL.parent)


def test_build_reproduces_the_committed_version(tmp_path: Path) -> None:
    """Config and graph are equal, weights up to the rounding of another CPU; if not, run `make model_repository`."""
    options = BuildOptions(repository=tmp_path / "model_repository", server=None)
    (report,) = build(load_spec(SPEC), options, Silent()).models
    assert report.error is None
    new = tmp_path / "model_repository" / "digits_cnn"
    assert (MODEL / CONFIG_FILE).read_text() == (new / CONFIG_FILE).read_text()
    assert (MODEL / "1" / "golden.json").read_text() == (new / "1" / "golden.json").read_text()
    committed, built = (onnx.load(model / "1" / "model.onnx").graph for model in (MODEL, new))
    assert list(committed.node) == list(built.node)
    for one, other in zip(committed.initializer, built.initializer, strict=True):
        assert one.name == other.name
        np.testing.assert_allclose(onnx.numpy_helper.to_array(one), onnx.numpy_helper.to_array(other), rtol=1e-5)


def test_committed_repository_passes_its_smoke_test() -> None:
    """`repogen smoke model_repository`, as in the README."""
    command = [sys.executable, "-m", "repogen", "smoke", "model_repository"]
    smoke = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (smoke.returncode, smoke.stdout.partition(" on Triton")[0]) == (0, "digits_cnn version 1: passed")
