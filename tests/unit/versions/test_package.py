"""`repogen publish --format` packs verified versions as SageMaker and Azure ML read a Triton repository."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.transfer import PackageFormat
from repogen.cli.group import main
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.files.url import location
from repogen.versions.package import require_package_name
from tests.support.published import Publisher
from tests.support.scaled_models import Scaled, publish_ensemble, publish_scaled

if TYPE_CHECKING:
    from pathlib import Path

VERSION = ["config.pbtxt", "golden.json", "golden.npz", "manifest.json", "model.onnx"]


@pytest.fixture
def source(tmp_path: Path) -> Publisher:
    """Return a repository with two versions of `m`, the second one with files next to config.pbtxt."""
    publisher = Publisher(tmp_path / "source" / "repo")
    publisher.publish(weights=b"1")
    publisher.publish(weights=b"2", labels=("a", "b"))
    return publisher


def packed(repository: Path, target: Path, version: int | None = None, name: str = "m") -> str:
    """Write an archive for SageMaker, and return its digest."""
    return repogen.publish(name, version, source=repository, target=target, package_format="sagemaker").digest


def unpacked(archive: Path, directory: Path) -> list[tarfile.TarInfo]:
    """Unpack an archive, and return its members."""
    with tarfile.open(archive) as stream:
        stream.extractall(directory, filter="data")
        return stream.getmembers()


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_archive_of_sagemaker(source: Publisher, tmp_path: Path) -> None:
    """The models are at the root, with the bytes of the source; nothing else is in or next to the archive."""
    target = tmp_path / "new" / "model.tar.gz"
    digest = packed(source.repository, target, 1)
    assert digest == f"sha256:{sha256(target.read_bytes()).hexdigest()}"
    assert list(target.parent.iterdir()) == [target]
    members = unpacked(target, tmp_path / "unpacked")
    names = [each.name for each in members]
    assert names == ["m", "m/1", *(f"m/1/{name}" for name in VERSION), "m/config.pbtxt"]
    assert {(each.mode, each.uid, each.gid, each.uname, each.mtime) for each in members} == {
        (0o755, 0, 0, "", 315_532_800),
        (0o644, 0, 0, "", 315_532_800),
    }
    assert repogen.verify(tmp_path / "unpacked").findings == ()
    assert files_in(tmp_path / "unpacked" / "m" / "1") == files_in(source.repository / "m" / "1")


def test_files_that_the_config_names_are_packed(source: Publisher, tmp_path: Path) -> None:
    """They are next to config.pbtxt, where Triton reads them."""
    packed(source.repository, tmp_path / "model.tar.gz")
    unpacked(tmp_path / "model.tar.gz", tmp_path / "unpacked")
    (label,) = (tmp_path / "unpacked" / "m").glob("labels-*.txt")
    assert label.name in (tmp_path / "unpacked" / "m" / "config.pbtxt").read_text()


def test_same_version_gives_the_same_bytes(source: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a copy with other times and modes, under another number, and with another umask."""
    copy = tmp_path / "copy"
    shutil.copytree(source.repository, copy)
    for path in copy.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    other = Publisher(tmp_path / "other" / "repo")
    for version in (2, 1):
        repogen.publish("m", version, source=copy, target=other.repository)
    first = packed(source.repository, tmp_path / "1.tar.gz", 1)
    before = os.umask(0o077)
    try:
        monkeypatch.chdir(tmp_path)
        assert packed(other.repository, tmp_path / "2.tar.gz", 2) == first
    finally:
        os.umask(before)
    assert packed(source.repository, tmp_path / "3.tar.gz", 2) != first


def test_directory_of_azure_ml(source: Publisher, tmp_path: Path) -> None:
    """The directory is the model repository, without repogen's own files."""
    target = tmp_path / "models"
    report = repogen.publish("m", 1, source=source.repository, target=target, package_format="azureml")
    assert (report.digest, report.target) == ("", target)
    assert sorted(files_in(target)) == [*(f"m/1/{name}" for name in VERSION), "m/config.pbtxt"]
    assert repogen.verify(target).findings == ()


def test_ensemble_with_its_steps(tmp_path: Path) -> None:
    """The steps are packed with it, each as its only version."""
    repository = tmp_path / "repo"
    for factor in (1.0, 2.0):
        publish_scaled(repository, "step", Scaled(factor))
    publish_ensemble(repository, "outer", "step", Scaled(2.0))
    publish_scaled(repository, "unrelated", Scaled(1.0))
    packed(repository, tmp_path / "model.tar.gz", name="outer")
    members = unpacked(tmp_path / "model.tar.gz", tmp_path / "unpacked")
    assert [each.name for each in members if each.name.count("/") < 2 and each.isdir()] == [
        *("outer", "outer/1", "step", "step/1")
    ]
    assert repogen.verify(tmp_path / "unpacked").findings == ()


@pytest.mark.parametrize(
    ("target", "package_format", "code"),
    [
        ("models", "sagemaker", "publish.package-name"),
        ("s3://bucket/models", "azureml", "publish.package-name"),
        ("source", "azureml", "publish.exists"),
        ("model.tar.gz", "zip", "publish.format"),
        ("model.tar.gz", None, "publish.format"),
        ("model.ZIP", None, "publish.format"),
        ("s3://bucket/model.tgz", None, "publish.format"),
    ],
)
def test_unusable_target(source: Publisher, tmp_path: Path, target: str, package_format: str | None, code: str) -> None:
    """The error comes before anything is written."""
    before = files_in(tmp_path)
    place = target if "://" in target else tmp_path / target
    with pytest.raises(RepogenError) as caught:
        repogen.publish("m", source=source.repository, target=place, package_format=package_format)
    assert caught.value.code == code
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(
    ("target", "example"),
    [("pk.zip", "pk.tar.gz"), ("pk.tar", "pk.tar.gz"), ("pk", "pk/model.tar.gz"), ("s3://b/k.zip", "s3://b/k.tar.gz")],
)
def test_name_of_an_archive(target: str, example: str) -> None:
    """The example is not a file in a directory with the name of an archive."""
    with pytest.raises(RepogenError) as caught:
        require_package_name(location(target), PackageFormat.SAGEMAKER)
    assert caught.value.hint == f"for example --to {example}"


def test_damaged_version_is_not_packed(source: Publisher, tmp_path: Path) -> None:
    """Nothing is left behind, and the message does not name a temporary directory."""
    (source.repository / "m" / "2" / "model.onnx").write_bytes(b"3")
    target = tmp_path / "out" / "model.tar.gz"
    with pytest.raises(PublishError) as caught:
        packed(source.repository, target)
    assert caught.value.code == "publish.altered-source"
    assert not target.parent.exists()


@pytest.mark.parametrize(("target", "package_format"), [("model.tar.gz", "sagemaker"), ("oci://h/m:1", None)])
def test_package_of_all_models(source: Publisher, tmp_path: Path, target: str, package_format: str | None) -> None:
    """A package contains one model, and an ensemble's steps."""
    place = target if package_format is None else tmp_path / target
    with pytest.raises(SpecError, match="contains one model"):
        repogen.publish(None, source=source.repository, target=place, package_format=package_format)


def test_command(source: Publisher, tmp_path: Path) -> None:
    """The text says what to do next; a dry run writes nothing; `--json` has the digest."""
    target = tmp_path / "model.tar.gz"
    command = ["publish", "m", "--from", str(source.repository), "--to", str(target), "--format", "sagemaker"]
    result = CliRunner().invoke(main, [*command, "--dry-run"])
    assert (result.exit_code, target.exists()) == (0, False), result.output
    assert "would be packed" in result.output
    result = CliRunner().invoke(main, [*command, "--json"])
    assert json.loads(result.output)["digest"] == f"sha256:{sha256(target.read_bytes()).hexdigest()}"
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "exists" in result.output) == (7, True)
    target.unlink()
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME=m" in result.output) == (0, True)
