"""The target release of a repository, from its manifests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import Manifest, Provenance
from repogen.errors import SpecError
from repogen.repository.inventory import require_models
from repogen.repository.manifest import manifest_to_json
from repogen.serving.commands import recorded_target
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from pathlib import Path

OTHER = next(release for release in reversed(targets()) if release != DEFAULT_RELEASE)


def _write_manifest(repository: Path, name: str, release: str) -> Path:
    """Write the manifest of a model built for ``release``; return its path."""
    tensor = TensorSpec("x", "float32", ("batch", 4))
    provenance = Provenance({}, "", "", {}, release, "dynamo", 20, 10, 1, 1, 1, 0.0, 0.0)
    manifest = Manifest(name, 8, Signature((tensor,), (tensor,)), (FileRecord("model.onnx", "0" * 64, 1),), provenance)
    path = repository / name / "1" / "manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text(manifest_to_json(manifest))
    return path


def test_no_manifest(tmp_path: Path) -> None:
    """A repository that repogen did not build has the default target."""
    (tmp_path / "foreign" / "1").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    assert targets()[DEFAULT_RELEASE] == recorded_target(tmp_path)


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff", b""])
def test_damaged_manifest(tmp_path: Path, damage: bytes) -> None:
    """Damaged manifests are skipped."""
    _write_manifest(tmp_path, "a", DEFAULT_RELEASE).write_bytes(damage)
    _write_manifest(tmp_path, "b", OTHER)
    assert targets()[OTHER] == recorded_target(tmp_path)


def test_manifest_that_is_not_a_file(tmp_path: Path) -> None:
    """A directory in place of a manifest is skipped."""
    (tmp_path / "a" / "1" / "manifest.json").mkdir(parents=True)
    _write_manifest(tmp_path, "b", OTHER)
    assert targets()[OTHER] == recorded_target(tmp_path)
    os.mkfifo(_write_manifest(tmp_path, "c", OTHER).with_name("fifo"))
    (tmp_path / "c" / "1" / "fifo").replace(tmp_path / "c" / "1" / "manifest.json")
    assert targets()[OTHER] == recorded_target(tmp_path)


@pytest.mark.parametrize("name", ["missing", "loop", "r" * 300])
def test_repository_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    """`repogen smoke` and `repogen serve` report the path."""
    (tmp_path / "loop").symlink_to("loop")
    for repository, models in ((tmp_path / name, ()), (tmp_path, (name,))):
        with pytest.raises(SpecError):
            require_models(repository, models)


def test_model_behind_a_link_of_another_user(tmp_path: Path) -> None:
    """It could be a private model of this user; a link of this user is followed."""
    (tmp_path / "private").mkdir()
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "m").symlink_to(tmp_path / "private")
    require_models(tmp_path / "repository", ("m",))
    os.chown(tmp_path / "repository" / "m", 65534, 65534, follow_symlinks=False)
    with pytest.raises(SpecError) as caught:
        require_models(tmp_path / "repository", ("m",))
    assert caught.value.code == "foreign-link"


def test_misspelled_model_has_a_suggestion(tmp_path: Path) -> None:
    """The most similar name; all names if none is similar."""
    (tmp_path / "digits").mkdir()
    hints = []
    for name in ("digitz", "nobody"):
        with pytest.raises(SpecError) as caught:
            require_models(tmp_path, (name,))
        hints.append(caught.value.hint)
    assert hints == ['did you mean "digits"?', "models of the repository: digits"]
