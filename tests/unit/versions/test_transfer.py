"""`repogen publish` copies verified versions between repositories, and trusts nothing in the source."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.built_model import FileRecord
from repogen.artifacts.named_file import label_file
from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.cli.group import main
from repogen.errors import RepogenError
from repogen.registry.sync.sync import sync
from repogen.repository import transfer
from repogen.repository.digest import sha256_bytes, sha256_file
from repogen.repository.layout import next_version, versions
from repogen.repository.manifest import manifest_to_json, read_manifest
from tests.support.published import Publisher, contents
from tests.support.simulated_registry import SimulatedRegistry
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Publisher:
    """Return a repository with two versions of `m`."""
    publisher = Publisher(tmp_path / "source" / "repo")
    publisher.publish(weights=b"1", labels=("a", "b"))
    publisher.publish(weights=b"2")
    return publisher


@pytest.fixture
def target(tmp_path: Path) -> Publisher:
    """Return another repository, which does not exist yet."""
    return Publisher(tmp_path / "target" / "repo")


def bytes_of(root: Path) -> dict[str, bytes]:
    """Return the files of a directory, except for the lock."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != ".repogen.lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.parametrize("path", ["m", "m/1"])
def test_version_that_another_user_could_replace(source: Publisher, target: Publisher, path: str) -> None:
    """In a directory such as /tmp, the same files in a directory of another user are not accepted as a copy."""
    repogen.publish("m", source=source.repository, target=target.repository)
    (target.repository / path).parent.chmod(0o1777)
    os.chown(target.repository / path, 65534, -1)
    with pytest.raises(RepogenError, match="belongs to another user") as caught:
        repogen.publish("m", source=source.repository, target=target.repository)
    assert caught.value.code == "publish.foreign-model"


def test_same_bytes(source: Publisher, target: Publisher) -> None:
    """The copy has the same bytes and time under the next number; a version that is served already is not copied."""
    before = contents(source.repository)
    for _ in range(2):
        report = repogen.publish("m", 1, source=source.repository, target=target.repository)
        assert [(row.source, row.number) for row in report.versions] == [(1, 1)]
    assert not report.versions[0].published
    assert repogen.publish("m", source=source.repository, target=target.repository).versions[0].number == 2
    for number in ("1", "2"):
        copy, original = (each.repository / "m" / number for each in (target, source))
        assert bytes_of(copy) == bytes_of(original)
    times = [repogen.versions(repository=each.repository).models[0].versions[0].created for each in (source, target)]
    assert times[0] == times[1]
    assert contents(source.repository) == before
    assert repogen.verify(target.repository).findings == ()
    assert {path.name for path in target.repository.parent.iterdir()} == {"repo"}
    repogen.publish("m", 1, source=source.repository, target=target.repository)
    assert versions(target.repository / "m") == [1, 2, 3]


def test_held_version_is_the_default_and_stays_in_the_target(source: Publisher, target: Publisher) -> None:
    """What the source serves is copied; the target's hold is kept."""
    repogen.rollback("m", 1, repository=source.repository)
    target.publish(weights=b"0")
    repogen.rollback("m", 1, repository=target.repository)
    (row,) = repogen.publish("m", source=source.repository, target=target.repository).versions
    assert (row.source, row.number, row.held) == (1, 2, 1)
    assert "held" not in (target.repository / "m" / "2" / "config.pbtxt").read_text()
    assert not repogen.publish("m", source=source.repository, target=target.repository).versions[0].published
    repogen.rollback("m", repository=target.repository, release=True)
    assert repogen.verify(target.repository).findings == ()


def test_dry_run(source: Publisher, target: Publisher) -> None:
    """Everything is checked, and nothing is left."""
    report = repogen.publish("m", source=source.repository, target=target.repository, dry_run=True)
    assert [(row.number, row.published) for row in report.versions] == [(1, True)]
    assert not target.repository.parent.exists()


def _replace_manifest(version: Path, **changes: object) -> None:
    manifest = replace(read_manifest(version), **changes)  # type: ignore[arg-type]
    (version / "manifest.json").write_text(manifest_to_json(manifest))


def _list_file(version: Path, path: str) -> None:
    _replace_manifest(version, files=(*read_manifest(version).files, FileRecord(path, "0" * 64, 1)))


def _label_file(version: Path) -> None:
    """Add class names with the name of other ones."""
    (version / "labels-01234567.txt").write_bytes(b"a\n")
    document = json.loads((version / "manifest.json").read_text())
    document["files"].append({"path": "labels-01234567.txt", "sha256": sha256(b"a\n").hexdigest(), "size": 2})
    (version / "manifest.json").write_text(json.dumps(document))


def _link_out(version: Path) -> None:
    outside = version.parent.parent.parent / "outside"
    outside.write_bytes((version / "model.onnx").read_bytes())
    (version / "model.onnx").unlink()
    (version / "model.onnx").symlink_to(outside)


def _fifo(version: Path) -> None:
    (version / "golden.npz").unlink()
    os.mkfifo(version / "golden.npz")


def _config(version: Path, text: str) -> None:
    """Replace config.pbtxt and its record, as an attacker would."""
    (version / "config.pbtxt").write_text(text)
    record = FileRecord("config.pbtxt", sha256_file(version / "config.pbtxt"), len(text))
    others = [file for file in read_manifest(version).files if file.path != "config.pbtxt"]
    _replace_manifest(version, files=(*others, record))


def _names(version: Path, output: str) -> None:
    """Name a file in the output of config.pbtxt."""
    _config(version, (version / "config.pbtxt").read_text().replace('name: "y"', output))


def _listed_labels(version: Path) -> str:
    """Add class names that have the name of their content, and return the name."""
    file = label_file(("a", "b"))
    (version / file.name).write_bytes(file.content)
    record = FileRecord(file.name, sha256_bytes(file.content), len(file.content))
    _replace_manifest(version, files=(*read_manifest(version).files, record))
    return file.name


SPOILS: list[tuple[str, Callable[[Path], object], str]] = [
    ("other bytes", lambda version: (version / "model.onnx").write_bytes(b"x"), "publish.altered-source"),
    ("more bytes", lambda version: (version / "model.onnx").write_bytes(bytes(100)), "publish.altered-source"),
    ("fewer bytes", lambda version: (version / "model.onnx").write_bytes(b""), "publish.altered-source"),
    ("missing file", lambda version: (version / "golden.npz").unlink(), "publish.copy"),
    ("no config", lambda version: (version / "config.pbtxt").unlink(), "publish.copy"),
    ("FIFO", _fifo, "publish.copy"),
    ("link", _link_out, "publish.copy"),
    ("no manifest", lambda version: (version / "manifest.json").unlink(), "publish.unverified"),
    ("damaged manifest", lambda version: (version / "manifest.json").write_text("{"), "publish.unverified"),
    ("other model", lambda version: _replace_manifest(version, model="n"), "publish.altered-source"),
    ("listed manifest", lambda version: _list_file(version, "manifest.json"), "publish.altered-source"),
    ("listed twice", lambda version: _list_file(version, "model.onnx"), "publish.altered-source"),
    ("class names of another version", _label_file, "publish.unverified"),
    ("other config", lambda version: _config(version, 'name: "m" max_batch_size: -3'), "publish.unservable"),
    (
        "class names that do not exist",
        lambda version: _names(version, 'name: "y" label_filename: "missing.txt"'),
        "publish.unservable",
    ),
    (
        "class names in another directory",
        lambda version: _names(version, f'name: "y" label_filename: "2/{_listed_labels(version)}"'),
        "publish.unservable",
    ),
    (
        "class names that are not named by their content",
        lambda version: _names(version, 'name: "y" label_filename: "config.pbtxt"'),
        "publish.unservable",
    ),
    (
        "Python without code",
        lambda version: _config(version, (version / "config.pbtxt").read_text().replace('"onnxruntime"', '"python"')),
        "publish.unservable",
    ),
    (
        "another backend",
        lambda version: _config(
            version, (version / "config.pbtxt").read_text().replace('"onnxruntime"', '"pytorch"') + "# another\n"
        ),
        "publish.refused",
    ),
    (
        "code",
        lambda version: _config(
            version, (version / "config.pbtxt").read_text() + 'model_operations { op_library_filename: "evil.so" }\n'
        ),
        "publish.refused",
    ),
]


@pytest.mark.parametrize(("spoil", "code"), [case[1:] for case in SPOILS], ids=[case[0] for case in SPOILS])
def test_altered_source(source: Publisher, target: Publisher, spoil: Callable[[Path], object], code: str) -> None:
    """Each alteration is rejected, and nothing is left in or next to the target."""
    spoil(source.repository / "m" / "2")
    before = contents(source.repository)
    with pytest.raises(RepogenError) as caught:
        repogen.publish("m", 2, source=source.repository, target=target.repository)
    assert (caught.value.code, int(caught.value.exit_code)) == (code, 7)
    assert not target.repository.parent.exists()
    assert contents(source.repository) == before


@pytest.mark.parametrize("file", ["attestation.json", "manifest.json", "model.onnx"])
@pytest.mark.parametrize("whole", [False, True], ids=["file", "version"])
def test_link_that_replaces_a_source_before_it_is_opened(
    source: Publisher,
    target: Publisher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    whole: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Who can write to the source could have other files of this user published, which every user may then read."""
    version, secret = source.repository / "m" / "2", tmp_path / "secret"
    (version / "attestation.json").write_text("{}")
    shutil.copytree(version, secret)
    replaced, link = (version, secret) if whole else (version / file, secret / file)

    def number(model: Path) -> int:
        swap_when_opened(monkeypatch, version / file, replaced, link)
        return next_version(model)

    monkeypatch.setattr(transfer, "next_version", number)
    with pytest.raises(RepogenError, match="leads out of") as caught:
        repogen.publish("m", 2, source=source.repository, target=target.repository)
    assert caught.value.code == "publish.copy"
    assert not target.repository.parent.exists()


def test_sparse_files_are_not_copied(source: Publisher, target: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holes of a file of a few bytes would fill the target's disk."""
    version = source.repository / "m" / "2"
    (version / "holes").touch()
    os.truncate(version / "holes", 2**22)
    record = FileRecord("holes", sha256_bytes(bytes(2**22)), 2**22)
    _replace_manifest(version, files=(*read_manifest(version).files, record))
    monkeypatch.setattr("repogen.files.content._MAX_HOLES", 2**21)
    with pytest.raises(RepogenError, match="sparse") as caught:
        repogen.publish("m", 2, source=source.repository, target=target.repository)
    assert caught.value.code == "publish.copy"
    assert not target.repository.parent.exists()


def test_files_with_many_links_are_not_copied(
    source: Publisher, target: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies could fill the disk, and an archive of them take hours."""
    version = source.repository / "m" / "2"
    (version / "weights").write_bytes(bytes(range(256)) * 256)
    manifest = read_manifest(version)
    names = ["weights", *(f"link{number}" for number in range(8))]
    for name in names[1:]:
        (version / name).hardlink_to(version / "weights")
    records = (FileRecord(name, sha256_file(version / name), 65536) for name in names)
    _replace_manifest(version, files=(*manifest.files, *records))
    monkeypatch.setattr("repogen.repository.manifest._MAX_REPEATED_BYTES", 2**18)
    with pytest.raises(RepogenError, match="several links lead to the same files") as caught:
        repogen.publish("m", 2, source=source.repository, target=target.repository)
    assert caught.value.code == "publish.altered-source"
    assert not target.repository.parent.exists()


def test_unlisted_files_are_not_copied(source: Publisher, target: Publisher) -> None:
    """Neither a module that Python could import, nor the mark of an unconfirmed version."""
    for name in ("evil.py", "unconfirmed"):
        (source.repository / "m" / "2" / name).touch()
    repogen.publish("m", source=source.repository, target=target.repository)
    assert repogen.verify(target.repository).findings == ()


def test_target_that_may_not_be_written(source: Publisher, target: Publisher, tmp_path: Path) -> None:
    """A breaking change, a synced repository, a foreign model, and the source itself are rejected."""
    target.publish(shape=("batch", 9))
    registry = SimulatedRegistry(tmp_path / "registry")
    registry.register(source.repository / "m" / "1", "champion")
    sync(registry, tmp_path / "synced", SyncOptions("champion"), Silent())
    (tmp_path / "foreign" / "m" / "1").mkdir(parents=True)
    (tmp_path / "foreign" / "m" / "1" / "model.onnx").touch()
    cases = {
        target.repository: "publish.breaking",
        tmp_path / "synced": "publish.synced-repository",
        tmp_path / "foreign": "publish.foreign-model",
        source.repository: "publish.same-repository",
    }
    for repository, code in cases.items():
        before = bytes_of(repository)
        with pytest.raises(RepogenError) as caught:
            repogen.publish("m", source=source.repository, target=repository)
        assert (caught.value.code, bytes_of(repository) == before) == (code, True)
    report = repogen.publish("m", source=source.repository, target=target.repository, allow_breaking=True)
    assert report.versions[0].number == 2


ENSEMBLE = """\
name: "{name}"
platform: "ensemble"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }} ]
{policy}
# {batch} {dims}
ensemble_scheduling {{ step [ {{ model_name: "STEP" model_version: NUMBER
  input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "y" }} }} ] }}
"""


def publish_ensemble(publisher: Publisher, name: str, step: str, number: int = -1) -> None:
    """Publish an ensemble of one step."""
    publisher.publish(name, template=ENSEMBLE.replace("STEP", step).replace("NUMBER", str(number)))


def test_ensemble_with_its_steps(source: Publisher, target: Publisher) -> None:
    """The steps come first, at any depth; those that the target serves are not copied again."""
    publish_ensemble(source, "inner", "m")
    publish_ensemble(source, "outer", "inner")
    report = repogen.publish("outer", source=source.repository, target=target.repository)
    assert [(row.model, row.source, row.number) for row in report.versions] == [
        ("m", 2, 1),
        ("inner", 1, 1),
        ("outer", 1, 1),
    ]
    source.publish("outer", b"2", template=ENSEMBLE.replace("STEP", "m").replace("NUMBER", "-1"))
    report = repogen.publish("outer", source=source.repository, target=target.repository)
    assert [(row.model, row.published) for row in report.versions] == [("m", False), ("outer", True)]
    assert repogen.verify(target.repository).findings == ()


def test_step_with_a_version(source: Publisher, target: Publisher) -> None:
    """A step's number is part of the ensemble's bytes, so it must be the same in the target."""
    publish_ensemble(source, "e", "m", 2)
    with pytest.raises(RepogenError) as caught:
        repogen.publish("e", source=source.repository, target=target.repository)
    assert caught.value.code == "publish.ensemble"
    assert not target.repository.parent.exists()
    target.publish(weights=b"0")
    assert [
        row.number for row in repogen.publish("e", source=source.repository, target=target.repository).versions
    ] == [2, 1]


def test_ensemble_of_the_target_that_would_not_load(source: Publisher, target: Publisher) -> None:
    """A new version of a step is rejected if an ensemble of the target could not use it."""
    target.publish(weights=b"0")
    publish_ensemble(target, "e", "m")
    source.publish(weights=b"3", shape=("batch", 9))
    with pytest.raises(RepogenError) as caught:
        repogen.publish("m", source=source.repository, target=target.repository)
    assert (caught.value.code, versions(target.repository / "m")) == ("publish.ensemble", [1])


def test_step_that_is_missing_and_cycle(source: Publisher, target: Publisher) -> None:
    """Both are errors, and nothing is published."""
    publish_ensemble(source, "e", "none")
    publish_ensemble(source, "a", "b")
    publish_ensemble(source, "b", "a")
    for name, code in (("e", "repository.no-such-model"), ("a", "publish.step-cycle")):
        with pytest.raises(RepogenError) as caught:
            repogen.publish(name, source=source.repository, target=target.repository)
        assert caught.value.code == code
    assert not target.repository.parent.exists()


def test_command(source: Publisher, target: Publisher, tmp_path: Path) -> None:
    """NAME@VERSION selects a version; missing ones are errors."""
    places = ["--from", str(source.repository), "--to", str(target.repository)]
    result = CliRunner().invoke(main, ["publish", "m@1", *places])
    assert result.exit_code == 0
    assert result.output.startswith(f"m: version 1 of {source.repository} published as version 1 of ")
    document = json.loads(CliRunner().invoke(main, ["publish", "m", *places, "--json"]).output)
    assert [(row["source"], row["number"]) for row in document["versions"]] == [(2, 2)]
    for arguments in (["m@9", *places], ["n", *places], ["m", "--from", str(tmp_path / "none"), *places[2:]]):
        assert CliRunner().invoke(main, ["publish", *arguments]).exit_code == 2


def test_target_with_code_next_to_the_versions(source: Publisher, target: Publisher) -> None:
    """Triton would run it instead of the backend."""
    target.publish(weights=b"0")
    (target.repository / "m" / "libtriton_onnxruntime.so").touch()
    with pytest.raises(RepogenError, match=r"libtriton_onnxruntime\.so is a file that Triton would run as code"):
        repogen.publish("m", source=source.repository, target=target.repository)
    assert versions(target.repository / "m") == [1]


def test_all_models_are_published_together(source: Publisher, target: Publisher) -> None:
    """What the source serves of each; a second run publishes nothing."""
    source.publish("other", weights=b"3")
    for published in (True, False):
        report = repogen.publish(source=source.repository, target=target.repository)
        rows = [(row.model, row.source, row.number, row.published) for row in report.versions]
        assert rows == [("m", 2, 1, published), ("other", 1, 1, published)]
    assert repogen.verify(target.repository).models == 2
    with pytest.raises(RepogenError) as caught:
        repogen.publish(None, 1, source=source.repository, target=target.repository)
    assert caught.value.code == "publish.version-of-all"


@pytest.mark.parametrize("arguments", [[], ["m", "--all"]])
def test_either_a_model_or_all(arguments: list[str]) -> None:
    """Both, or neither, is a usage error."""
    result = CliRunner().invoke(main, ["publish", *arguments, "--from", "a", "--to", "b"])
    assert result.exit_code == 2
    assert "either NAME or --all" in result.output
