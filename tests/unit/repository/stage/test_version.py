"""A staged version: its layout, its manifest, and reproducible bytes."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.built_model import OnnxArtifact
from repogen.artifacts.named_file import label_file
from repogen.artifacts.steps import PythonArtifact
from repogen.artifacts.tensors import Signature, TensorSpec
from repogen.artifacts.versions import ModelConfig, Provenance, StagedVersion
from repogen.errors import PublishError
from repogen.repository.layout import code_file
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.stage import stage_version
from repogen.repository.workspace import prepare_stage_root

if TYPE_CHECKING:
    from pathlib import Path

SIGNATURE = Signature((TensorSpec("x", "float32", ("batch", 4)),), (TensorSpec("y", "int64", ("batch",)),))
CONFIG = ModelConfig("m", 'name: "m"\n# ü\n', 8, SIGNATURE)
PROVENANCE = Provenance(
    {"torch": "2"}, "c0ffee", "00", {"spec": "1"}, "24.10", "dynamo", 20, 10, 9, 8, 7, 1e-6, float("inf")
)


def _outputs(directory: Path, *, data: bool = False) -> OnnxArtifact:
    directory.mkdir()
    names = ("model.onnx", "golden.json", "golden.npz", *(("model.onnx.data",) if data else ()))
    for name in names:
        (directory / name).write_bytes(name.encode())
    return OnnxArtifact(
        directory / "model.onnx",
        external_data=data,
        signature=SIGNATURE,
        opset=20,
        ir_version=10,
        nodes=8,
        exporter="dynamo",
    )


def _stage(root: Path, repository: Path, *, data: bool = False) -> StagedVersion:
    artifact = _outputs(root / "worker", data=data)
    return stage_version(root, repository, CONFIG, artifact, root / "worker", PROVENANCE)


def _tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_layout(tmp_path: Path) -> None:
    """The model directory is as in the repository, with external data next to the model."""
    with prepare_stage_root(tmp_path / "repo", None) as root:
        staged = _stage(root, tmp_path / "repo", data=True)
        tree = _tree(staged.model_dir)
    assert staged.version_dir == root / "repository" / "m" / "1"
    assert sorted(tree) == [
        "1/config.pbtxt",
        "1/golden.json",
        "1/golden.npz",
        "1/manifest.json",
        "1/model.onnx",
        "1/model.onnx.data",
        "config.pbtxt",
    ]
    assert tree["config.pbtxt"] == tree["1/config.pbtxt"] == CONFIG.text.encode()


def test_manifest(tmp_path: Path) -> None:
    """The manifest lists every other file with the digest of its bytes, and round-trips."""
    with prepare_stage_root(tmp_path / "repo", None) as root:
        staged = _stage(root, tmp_path / "repo")
        assert read_manifest(staged.version_dir) == staged.manifest
        assert damaged_files(staged.version_dir, staged.manifest) == ()
        assert [file.path for file in staged.manifest.files] == [
            "config.pbtxt",
            "golden.json",
            "golden.npz",
            "model.onnx",
        ]
        (staged.version_dir / "model.onnx").write_bytes(b"model.onnX")
        (staged.version_dir / "golden.npz").unlink()
        (staged.version_dir / "golden.json").write_bytes(b"{}")
        assert damaged_files(staged.version_dir, staged.manifest) == (
            "golden.json has 2 bytes, not 11",
            "golden.npz is missing",
            "model.onnx has a different sha256",
        )


def test_equal_builds_have_equal_bytes(tmp_path: Path) -> None:
    """A different directory and time give the same files."""
    trees = []
    for place in ("one", "two"):
        with prepare_stage_root(tmp_path / place / "repo", None) as root:
            trees.append(_tree(_stage(root, tmp_path / place / "repo").model_dir))
    assert trees[0] == trees[1]


def test_files_in_the_root_are_linked_and_others_copied(tmp_path: Path) -> None:
    """A model built in the root is not copied; one from elsewhere is."""
    outside = _outputs(tmp_path / "outside")
    with prepare_stage_root(tmp_path / "repo", None) as root:
        own = _outputs(root / "worker")
        staged = stage_version(root, tmp_path / "repo", CONFIG, own, tmp_path / "outside", PROVENANCE)
        assert (staged.version_dir / "model.onnx").samefile(own.path)
        assert not (staged.version_dir / "golden.npz").samefile(outside.path.with_name("golden.npz"))


def test_next_number(tmp_path: Path) -> None:
    """The tentative number follows the versions in the repository."""
    (tmp_path / "repo" / "m" / "41").mkdir(parents=True)
    with prepare_stage_root(tmp_path / "repo", None) as root:
        assert _stage(root, tmp_path / "repo").version == 42


def test_missing_external_data(tmp_path: Path) -> None:
    """Missing external data is an error that names the file."""
    with prepare_stage_root(tmp_path / "repo", None) as root:
        artifact = _outputs(root / "worker", data=True)
        artifact.path.with_name("model.onnx.data").unlink()
        with pytest.raises(PublishError, match=r"model\.onnx\.data"):
            stage_version(root, tmp_path / "repo", CONFIG, artifact, root / "worker", PROVENANCE)


@pytest.mark.parametrize("name", ["", ".", "..", "../m", "a/b", ".hidden", "nul\0"])
def test_invalid_model_names(tmp_path: Path, name: str) -> None:
    """A model's name cannot escape the repository."""
    with prepare_stage_root(tmp_path / "repo", None) as root:
        artifact = _outputs(root / "worker")
        with pytest.raises(PublishError, match="cannot be the name of a model's directory"):
            stage_version(
                root, tmp_path / "repo", ModelConfig(name, "", 0, SIGNATURE), artifact, root / "worker", PROVENANCE
            )


def test_companions_and_labels_are_published(tmp_path: Path) -> None:
    """Both are in the version and in its manifest; labels are also where Triton looks for them."""
    labels = label_file(["yes", "no"])
    config = ModelConfig("m", CONFIG.text, 8, SIGNATURE, (labels,))
    (tmp_path / "tokenizer.json").write_text("{}")
    with prepare_stage_root(tmp_path / "repo", None) as root:
        artifact = _outputs(root / "worker")
        companions = {"tokenizer.json": tmp_path / "tokenizer.json"}
        staged = stage_version(
            root, tmp_path / "repo", config, artifact, root / "worker", PROVENANCE, companions=companions
        )
        tree = _tree(staged.model_dir)
        assert not damaged_files(staged.version_dir, staged.manifest)
    assert {"tokenizer.json", labels.name} <= {file.path for file in staged.manifest.files}
    assert tree["1/tokenizer.json"] == b"{}"
    assert tree[labels.name] == tree[f"1/{labels.name}"] == b"yes\nno\n"


def test_packed_packages_are_published_next_to_the_code(tmp_path: Path) -> None:
    """The generated model.py is next to the user's file, and the manifest lists the files of the packages."""
    with prepare_stage_root(tmp_path / "repo", None) as root:
        packed = root / "packed"
        _outputs(root / "worker")
        for path in ("model.py", "packages/cp312.txt", "packages/common/a/b.so"):
            (packed / path).parent.mkdir(parents=True, exist_ok=True)
            (packed / path).write_text(path)
        code = root / "step.py"
        code.write_text("the user's")
        artifact = PythonArtifact(code, SIGNATURE, ("a==1",), packed=packed)
        staged = stage_version(root, tmp_path / "repo", CONFIG, artifact, root / "worker", PROVENANCE)
        tree = _tree(staged.version_dir)
        assert not damaged_files(staged.version_dir, staged.manifest)
        assert code_file(staged.version_dir).read_text() == "the user's"
    names = {file.path for file in staged.manifest.files}
    assert names == {
        *("config.pbtxt", "golden.json", "golden.npz", "model.py", "packed_model.py"),
        *("packages/cp312.txt", "packages/common/a/b.so"),
    }
    assert tree["model.py"] == b"model.py"
    assert staged.manifest.sha256 == sha256(b"the user's").hexdigest()


@pytest.mark.parametrize("name", ["model.onnx", "manifest.json", "packages", "../escape.json", "..", "", "a\0b"])
def test_reserved_companion_names(name: str, tmp_path: Path) -> None:
    """A companion cannot replace a file of the version, or be outside of it."""
    with prepare_stage_root(tmp_path / "repo", None) as root:
        artifact = _outputs(root / "worker")
        companions = {name: root / "worker" / "golden.json"}
        with pytest.raises(PublishError) as caught:
            stage_version(root, tmp_path / "repo", CONFIG, artifact, root / "worker", PROVENANCE, companions=companions)
    assert caught.value.code == "stage.companion-name"
