"""The target to serve a repository with, as its manifests record it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.repository.manifest import manifest_to_json
from repogen.serving.commands import recorded_target
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from pathlib import Path

OTHER = next(release for release in reversed(targets()) if release != DEFAULT_RELEASE)


def _built(repository: Path, name: str, release: str) -> Path:
    """Write the manifest of a model built for ``release``; return its path."""
    tensor = TensorSpec("x", "float32", ("batch", 4))
    made = Provenance({}, "", "", {}, release, "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
    manifest = Manifest(name, 8, Signature((tensor,), (tensor,)), (FileRecord("model.onnx", "0" * 64, 1),), made)
    path = repository / name / "1" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text(manifest_to_json(manifest))
    return path


def test_no_manifest(tmp_path: Path) -> None:
    """A repository that repogen did not build is served with the default."""
    (tmp_path / "foreign" / "1").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert targets()[DEFAULT_RELEASE] == recorded_target(tmp_path)


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff", b""])
def test_damaged_manifest(tmp_path: Path, damage: bytes) -> None:
    """One damaged model stops nobody from serving the others, with the target that they name."""
    _built(tmp_path, "a", DEFAULT_RELEASE).write_bytes(damage)
    _built(tmp_path, "b", OTHER)
    assert targets()[OTHER] == recorded_target(tmp_path)


def test_manifest_that_is_no_file(tmp_path: Path) -> None:
    """What lies in a manifest's place and can't be read is passed over."""
    (tmp_path / "a" / "1" / "manifest.json").mkdir(parents=True)
    _built(tmp_path, "b", OTHER)
    assert targets()[OTHER] == recorded_target(tmp_path)
