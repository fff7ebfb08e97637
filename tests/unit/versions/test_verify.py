"""`repogen verify` finds every file that differs from the manifests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncOptions
from repogen.cli.group import main
from repogen.errors import SpecError
from repogen.files import work_limit
from repogen.registry.sync.sync import sync
from repogen.repository import inventory, written_config
from repogen.repository.manifest import damaged_files
from repogen.repository.version_policy import serving_only
from repogen.versions import verify as verification
from tests.support.deep_tree import deep_tree
from tests.support.published import contents
from tests.support.simulated_registry import SimulatedRegistry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.artifacts.inventory import ModelRecord
    from tests.support.published import Publisher


def _replace_manifest(model: Path) -> None:
    document = json.loads((model / "1" / "manifest.json").read_text())
    (model / "1" / "manifest.json").write_text(json.dumps({**document, "model": "other"}))


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


SPOILS: list[tuple[Callable[[Path], object], int | None, str]] = [
    (lambda model: (model / "1" / "model.onnx").write_bytes(b"x"), 1, "model.onnx has a different sha256"),
    (lambda model: _append(model / "1" / "model.onnx"), 1, "model.onnx has 2 bytes, not 1"),
    (lambda model: (model / "1" / "golden.npz").unlink(), 1, "golden.npz is missing"),
    (lambda model: (model / "1" / "more").touch(), 1, "more is not listed in the manifest"),
    (lambda model: (model / "1" / "sub").mkdir(), 1, "sub/ is not listed in the manifest"),
    (lambda model: (model / "1" / "manifest.json").unlink(), 1, "repogen did not build it: it has no manifest.json"),
    (_replace_manifest, 1, "manifest.json is that of a version of other"),
    (lambda model: _append(model / "config.pbtxt"), None, "config.pbtxt does not match any version"),
    (lambda model: (model / "config.pbtxt").unlink(), None, "config.pbtxt is missing"),
    (lambda model: next(model.glob("labels-*")).unlink(), None, " is missing"),
    (lambda model: next(model.glob("warmup/*")).write_bytes(b""), None, " has 0 bytes, not "),
]


@pytest.mark.parametrize(("spoil", "version", "message"), SPOILS)
def test_one_difference(
    publisher: Publisher, spoil: Callable[[Path], object], version: int | None, message: str
) -> None:
    """An intact repository has no findings; each difference is one, with exit code 1. Nothing is changed."""
    publisher.publish(labels=("a", "b"))
    publisher.publish(weights=b"2", labels=("a", "b"))
    publisher.publish("other")
    report = repogen.verify(publisher.repository)
    assert (report.findings, report.models, report.versions) == ((), 2, 3)
    assert report.files == sum(len(list(path.iterdir())) - 1 for path in publisher.repository.glob("*/[0-9]"))
    spoil(publisher.repository / "m")
    before = contents(publisher.repository)
    (finding,) = repogen.verify(publisher.repository).findings
    assert (finding.model, finding.version) == ("m", version)
    assert message in finding.message
    result = CliRunner().invoke(main, ["verify", str(publisher.repository)])
    assert (result.exit_code, message in result.output) == (1, True)
    assert CliRunner().invoke(main, ["verify", str(publisher.repository), "--model", "other"]).exit_code == 0
    assert contents(publisher.repository) == before


def test_synced_repository(publisher: Publisher, tmp_path: Path) -> None:
    """The version policy that a sync writes is not an edit."""
    publisher.publish()
    publisher.publish(weights=b"2")
    registry = SimulatedRegistry(tmp_path / "registry")
    for version in ("2", "1"):
        registry.register(publisher.repository / "m" / version)
    for number in (1, 2):
        registry.point("m", "champion", number)
        sync(registry, tmp_path / "synced", SyncOptions("champion"), Silent())
    assert repogen.verify(tmp_path / "synced").findings == ()


def test_versions_of_the_first_edition(publisher: Publisher, tmp_path: Path) -> None:
    """Their manifests have no `lossy`, and they have no attestation; every command accepts them."""
    for weights in (b"1", b"2"):
        publisher.publish(weights=weights)
    for path in publisher.repository.glob("m/*/manifest.json"):
        document = json.loads(path.read_text())
        del document["provenance"]["lossy"]
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
        assert not (path.parent / "attestation.json").exists()
    assert repogen.verify(publisher.repository).findings == ()
    assert [file.path for file in repogen.diff("m", repository=publisher.repository).files] == ["model.onnx"]
    assert repogen.rollback("m", repository=publisher.repository).after == (1,)
    assert repogen.publish("m", 2, source=publisher.repository, target=tmp_path / "copy").versions[0].number == 1
    assert repogen.verify(tmp_path / "copy").findings == ()
    assert publisher.publish(weights=b"3") == 3


def test_directory_of_a_model_is_not_a_repository(publisher: Publisher) -> None:
    """Its versions are not models."""
    publisher.publish()
    with pytest.raises(SpecError, match="is the directory of a model, not a repository") as caught:
        repogen.verify(publisher.repository / "m")
    assert str(publisher.repository) in caught.value.hint


def test_nothing_to_verify(tmp_path: Path) -> None:
    """A repository without models, and one that repogen did not build, do not pass."""
    with pytest.raises(SpecError, match="has no models"):
        repogen.verify(tmp_path)
    with pytest.raises(SpecError, match="is not a directory"):
        repogen.verify(tmp_path / "none")
    (tmp_path / "foreign" / "1").mkdir(parents=True)
    assert [finding.version for finding in repogen.verify(tmp_path).findings] == [1]
    shutil.rmtree(tmp_path / "foreign" / "1")
    assert [finding.message for finding in repogen.verify(tmp_path).findings] == ["it has no version"]


def test_foreign_version_that_is_nested_too_deeply_for_recursion(publisher: Publisher) -> None:
    """The size of its files is added up without recursion."""
    publisher.publish()
    foreign = publisher.repository / "m" / "2"
    foreign.mkdir()
    with deep_tree(foreign):
        assert [finding.version for finding in repogen.verify(publisher.repository).findings] == [2]
        assert len(repogen.versions("m", repository=publisher.repository).models[0].versions) == 2


def test_unreadable_config_is_one_finding(publisher: Publisher) -> None:
    """Without the number of a system error."""
    publisher.publish()
    config = publisher.repository / "m" / "config.pbtxt"
    config.unlink()
    with config.open("wb") as stream:
        stream.truncate(2**40)
    messages = [finding.message for finding in repogen.verify(publisher.repository).findings]
    assert messages == ["repo/m/config.pbtxt: is larger than 1 MiB"]


def test_edited_config_is_compared_with_one_version(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config was compared with a new text for each version, which took minutes for a large config and many links."""
    for weights in (b"1", b"2", b"3"):
        publisher.publish(weights=weights)
    model = publisher.repository / "m"
    change = Mock(wraps=serving_only)
    monkeypatch.setattr(written_config, "serving_only", change)
    own = (model / "2" / "config.pbtxt").read_text(encoding="utf-8")
    (model / "config.pbtxt").write_text(serving_only(own, 2), encoding="utf-8")
    assert written_config.origin_of_config(model) == 2
    for policy in ("", "version_policy { all { } }", "version_policy { specific { versions: [ 1, 2 ] } }", "}"):
        (model / "config.pbtxt").write_text(f"# edited\n{own}\n{policy}", encoding="utf-8")
        assert written_config.origin_of_config(model) is None
    change.assert_called_once_with(own, 2)


def test_model_that_needs_too_much_work_is_a_finding(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other models are verified."""
    publisher.publish()
    publisher.publish("other")

    def read_model(repository: Path, name: str) -> ModelRecord:
        while name == "m":
            pass
        return inventory.read_model(repository, name)

    monkeypatch.setattr(work_limit, "_INTERVAL", 0.004)
    monkeypatch.setattr(
        verification, "work_limit", lambda subject, seconds=0.1: work_limit.work_limit(subject, seconds)
    )
    monkeypatch.setattr(verification, "read_model", read_model)
    report = repogen.verify(publisher.repository)
    (finding,) = report.findings
    assert (finding.model, finding.version) == ("m", None)
    assert finding.message == "model m needs more than 0.1 s of processor time to be read"
    assert (report.models, report.versions) == (2, 1)


def test_file_with_several_links_is_hashed_once(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The links of a tar archive of a kilobyte could lead to a file of gigabytes."""
    publisher.publish()
    files = repogen.verify(publisher.repository).files
    shutil.copytree(publisher.repository / "m" / "1", publisher.repository / "m" / "2", copy_function=os.link)
    hashed = Mock(wraps=hashlib.file_digest)
    monkeypatch.setattr(hashlib, "file_digest", hashed)
    assert repogen.verify(publisher.repository).files == 2 * files
    assert hashed.call_count == files


def test_holes_of_all_files_are_counted(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sparse files of a tar archive of a kilobyte could have gigabytes."""
    publisher.publish()
    model = publisher.repository / "m"
    document = json.loads((model / "1" / "manifest.json").read_text())
    names = [f"hole-{number}" for number in range(4)]
    for name in names:
        (model / "1" / name).touch()
        os.truncate(model / "1" / name, 2**20)
    digest = hashlib.sha256(bytes(2**20)).hexdigest()
    document["files"] += [{"path": name, "sha256": digest, "size": 2**20} for name in names]
    (model / "1" / "manifest.json").write_text(json.dumps(document))
    assert repogen.verify(publisher.repository).findings == ()
    monkeypatch.setattr("repogen.files.content._MAX_HOLES", 2**21)
    messages = [finding.message for finding in repogen.verify(publisher.repository).findings]
    assert messages == ["hole-2 cannot be read", "hole-3 cannot be read"]


def test_findings_are_limited(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links of many models can lead to one version with many findings; its files are compared once."""
    publisher.publish()
    version = publisher.repository / "m" / "1"
    for number in range(4):
        (version / f"more-{number}").touch()
    for name in ("n", "o"):
        (publisher.repository / name).symlink_to("m")
    compare = Mock(wraps=damaged_files)
    monkeypatch.setattr(verification, "damaged_files", compare)
    monkeypatch.setattr(verification, "_MAX_FINDINGS", 6)
    findings = repogen.verify(publisher.repository).findings
    assert [finding.model for finding in findings] == ["m"] * 4 + ["n"] * 3 + ["o"]
    assert [finding.message for finding in findings[-2:]] == ["more findings are not listed"] * 2
    assert compare.call_count == 1


@pytest.mark.parametrize("name", ["m", "m/1", "m/config.pbtxt", "m/1/manifest.json", "m/1/model.onnx"])
def test_link_of_another_user(publisher: Publisher, tmp_path: Path, name: str) -> None:
    """A finding shows neither the size nor the text of a private file; `versions` shows the same problem."""
    publisher.publish()
    publisher.publish("other")
    link = publisher.repository / name
    link.rename(tmp_path / "private")
    link.symlink_to(tmp_path / "private")
    os.chown(link, 65534, -1, follow_symlinks=False)
    message = f"{link} is a symlink of another user, who does not own what it leads to"
    (finding,) = repogen.verify(publisher.repository).findings
    assert (finding.model, finding.version, finding.message) == ("m", None, message)
    assert [model.problem for model in repogen.versions(repository=publisher.repository).models] == [message, ""]
    with pytest.raises(SpecError, match=re.escape(message)):
        repogen.versions("m", repository=publisher.repository)


def test_command_ends_at_its_limit(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not continue with the next model."""
    publisher.publish()
    publisher.publish("other")
    names = []

    def read_model(repository: Path, name: str) -> ModelRecord:  # noqa: ARG001 - never returns
        names.append(name)
        while True:
            pass

    monkeypatch.setattr(work_limit, "_INTERVAL", 0.004)
    monkeypatch.setattr(verification, "COMMAND_SECONDS", 0.05)
    monkeypatch.setattr(verification, "read_model", read_model)
    result = CliRunner().invoke(main, ["verify", str(publisher.repository), "--json"])
    assert (result.exit_code, names) == (7, ["m"])
    assert json.loads(result.stdout)["error"]["code"] == "work-limit"
