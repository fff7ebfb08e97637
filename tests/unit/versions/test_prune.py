"""`repogen prune` deletes old versions, and never one that is needed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.file_names import UNCONFIRMED_FILE
from repogen.artifacts.progress import Silent
from repogen.artifacts.prune import PruneOptions, PruneReport
from repogen.artifacts.sync import SyncOptions
from repogen.cli.group import main
from repogen.errors import PublishError, RepogenError
from repogen.registry.sync.sync import sync
from repogen.repository.filesystem import Disk
from repogen.repository.layout import versions
from repogen.repository.mirror import discard
from repogen.versions.prune import prune
from tests.support.deep_tree import deep_tree
from tests.support.published import contents
from tests.support.simulated_registry import SimulatedRegistry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.published import Publisher

ENSEMBLE = """\
name: "e" platform: "ensemble" max_batch_size: 8
input { name: "i" data_type: TYPE_FP32 dims: 4 } output { name: "o" data_type: TYPE_FP32 dims: 4 }
ensemble_scheduling { step { model_name: "m" model_version: 2
  input_map { key: "x" value: "i" } output_map { key: "y" value: "o" } } }
"""


@pytest.fixture
def five(publisher: Publisher) -> Publisher:
    """Return a repository with five versions of `m`, of which the newest is served."""
    for number in range(5):
        publisher.publish(weights=bytes([number]))
    return publisher


def keep_reasons(report: PruneReport) -> dict[int, str]:
    """Return the reason for which each version was kept."""
    return {version.version: version.keep_reason for version in report.versions if version.keep_reason}


def test_keep(five: Publisher) -> None:
    """The served version and those before it are kept; the others are deleted, also their bytes."""
    report = repogen.prune("m", keep=3, repository=five.repository)
    assert keep_reasons(report) == {5: "served", 4: "one of the 3 newest", 3: "one of the 3 newest"}
    assert versions(five.repository / "m") == [3, 4, 5]
    assert {path.name for path in five.repository.parent.iterdir()} == {"repo", "stage-of-repo"}
    assert repogen.prune("m", keep=3, repository=five.repository).deleted == ()
    assert versions(five.repository / "m") == [3, 4, 5]
    assert [version.version for version in repogen.prune(keep=0, repository=five.repository).deleted] == [4, 3]
    assert repogen.verify(five.repository).findings == ()


def test_interrupted_publish_is_completed(five: Publisher) -> None:
    """Also if no version is deleted; a dry run changes nothing."""
    model, journal = five.repository / "m", five.repository / ".repogen.m.pending.json"
    newest = (model / "config.pbtxt").read_bytes()
    five.publish(shape=("batch", 5))
    before, after = (hashlib.sha256(text).hexdigest() for text in (newest, (model / "config.pbtxt").read_bytes()))
    (model / "config.pbtxt").write_bytes(newest)
    journal.write_text(json.dumps({"before": before, "after": after}))
    repogen.prune("m", keep=9, dry_run=True, repository=five.repository)
    assert (model / "config.pbtxt").read_bytes() == newest
    assert repogen.prune("m", keep=9, repository=five.repository).deleted == ()
    assert (model / "config.pbtxt").read_bytes() == (model / "6" / "config.pbtxt").read_bytes() != newest
    assert not journal.exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_interrupted_publish_of_another_user_is_not_completed(five: Publisher, tmp_path: Path, kind: str) -> None:
    """In a directory such as ``/tmp``, any user could end a hold with a journal that names the current config."""
    repository = five.repository
    repogen.rollback("m", repository=repository)
    config = (repository / "m" / "config.pbtxt").read_bytes()
    journal = repository / ".repogen.m.pending.json"
    target = journal if kind == "file" else tmp_path / "journal"
    target.write_text(json.dumps({"before": hashlib.sha256(config).hexdigest(), "after": ""}))
    if kind == "link":
        journal.symlink_to(target)
    os.chown(journal, 65534, -1, follow_symlinks=False)
    repository.chmod(0o1777)
    with pytest.raises(PublishError, match="belongs to another user, who could change") as caught:
        repogen.prune("m", keep=9, repository=repository)
    assert caught.value.code == "publish.foreign-model"
    with pytest.raises(PublishError, match="belongs to another user"):
        repogen.rollback("m", repository=repository)
    assert (repository / "m" / "config.pbtxt").read_bytes() == config


def test_dry_run(five: Publisher) -> None:
    """The report is the same, and nothing is changed."""
    before = contents(five.repository)
    report = repogen.prune(keep=2, repository=five.repository, dry_run=True)
    assert contents(five.repository) == before
    assert report.deleted == repogen.prune(keep=2, repository=five.repository).deleted


def test_hold(five: Publisher) -> None:
    """The held version is kept, and those that are newer; K counts from the held version."""
    repogen.rollback("m", 3, repository=five.repository)
    report = repogen.prune(keep=2, repository=five.repository)
    newer = "newer than version 3, which is served"
    assert keep_reasons(report) == {5: newer, 4: newer, 3: "held", 2: "one of the 2 newest"}


def test_policy_and_ensemble(five: Publisher) -> None:
    """Every served version is kept, and one that an ensemble's step names."""
    five.publish(weights=b"6", policy="latest { num_versions: 2 }")
    (five.repository / "e" / "1").mkdir(parents=True)
    (five.repository / "e" / "config.pbtxt").write_text(ENSEMBLE)
    report = repogen.prune("m", keep=0, repository=five.repository)
    assert keep_reasons(report) == {6: "served", 5: "served", 2: "ensemble e uses this version"}


def test_age(five: Publisher) -> None:
    """With --older-than, younger versions are kept; the manifest's time counts."""
    for number, days in ((1, 40), (2, 31), (3, 29)):
        manifest = five.repository / "m" / str(number) / "manifest.json"
        at = time.time() - days * 86400
        os.utime(manifest, (at, at))
    report = repogen.prune(keep=0, repository=five.repository, older_than=timedelta(days=30))
    assert [version.version for version in report.deleted] == [2, 1]
    assert keep_reasons(report)[3].startswith("created 20")


def test_versions_that_repogen_did_not_build_or_confirm(five: Publisher) -> None:
    """They are kept: a manifest that is missing or damaged, and a version that the registry lists as pending."""
    model = five.repository / "m"
    (model / "1" / "manifest.json").unlink()
    (model / "2" / "manifest.json").write_text("{")
    (model / "3" / UNCONFIRMED_FILE).touch()
    report = repogen.prune(keep=0, repository=five.repository)
    assert [version.version for version in report.deleted] == [4]
    assert keep_reasons(report)[3] == "the model registry lists it as pending"


@pytest.mark.parametrize("damaged", ["manifest.json", "model.onnx"])
def test_last_intact_version_is_kept(five: Publisher, damaged: str) -> None:
    """The served version is damaged, its manifest or a file: a rollback needs another one."""
    model = five.repository / "m"
    (model / "5" / damaged).write_text("{")
    (model / "4" / "model.onnx").write_bytes(b"damaged")
    report = repogen.prune(keep=0, repository=five.repository, dry_run=True)
    intact = "no other version that is kept is intact"
    assert keep_reasons(report) == {5: "served", 3: intact}
    assert keep_reasons(repogen.prune(keep=0, repository=five.repository)) == {5: "served", 3: intact}
    assert versions(model) == [3, 5]
    repogen.rollback("m", 3, repository=five.repository)
    assert keep_reasons(repogen.prune(keep=0, repository=five.repository)) == {
        5: "newer than version 3, which is served",
        3: "held",
    }


def test_versions_are_deleted_if_none_is_intact(five: Publisher) -> None:
    """There is nothing to keep."""
    for version in range(1, 6):
        (five.repository / "m" / str(version) / "model.onnx").unlink()
    assert len(repogen.prune(keep=0, repository=five.repository).deleted) == 4


@pytest.mark.parametrize("config", ["no_such_field: 1", "version_policy { specific {} }"])
def test_nothing_is_deleted_if_it_is_not_known_what_is_served(five: Publisher, config: str) -> None:
    """A config that can't be parsed, or serves nothing."""
    (five.repository / "m" / "config.pbtxt").write_text(config)
    before = contents(five.repository)
    report = repogen.prune(keep=0, repository=five.repository)
    assert all(reason.startswith("it is not known what is served: ") for reason in keep_reasons(report).values())
    assert (report.deleted, contents(five.repository)) == ((), before)


def test_ensemble_that_cannot_be_parsed(five: Publisher) -> None:
    """It is not known which versions it uses, so nothing is deleted."""
    (five.repository / "e" / "1").mkdir(parents=True)
    (five.repository / "e" / "config.pbtxt").write_text("ensemble_scheduling { step { no_such_field: 1 } }")
    before = contents(five.repository)
    with pytest.raises(RepogenError, match="no_such_field"):
        repogen.prune("m", keep=0, repository=five.repository)
    assert contents(five.repository) == before


@pytest.fixture
def synced(five: Publisher, tmp_path: Path) -> tuple[SimulatedRegistry, Path]:
    """Return a registry and a repository that has its versions 1 to 4, of which 3 is served."""
    registry, target = SimulatedRegistry(tmp_path / "registry"), tmp_path / "synced" / "repo"
    for number in range(1, 5):
        registry.register(five.repository / "m" / str(number))
    for version in (1, 2, 4, 3):
        registry.point("m", "champion", version)
        sync(registry, target, SyncOptions("champion"), Silent())
    registry.point("m", "stable", 1)
    return registry, target


def test_alias_in_the_registry(synced: tuple[SimulatedRegistry, Path]) -> None:
    """A version with any alias is kept."""
    registry, target = synced
    report = prune(target, (), PruneOptions(keep=0), lambda: registry)
    newer = "newer than version 3, which is served"
    assert keep_reasons(report) == {4: newer, 3: "served", 1: "alias stable in the model registry"}
    assert versions(target / "m") == [1, 3, 4]


def test_sync_prune_keeps_the_same(synced: tuple[SimulatedRegistry, Path]) -> None:
    """`repogen sync --prune` keeps what `repogen prune --keep 0` keeps."""
    registry, target = synced
    sync(registry, target, SyncOptions("champion", prune=True), Silent())
    assert versions(target / "m") == [1, 3, 4]


def test_registry_that_cannot_be_asked(synced: tuple[SimulatedRegistry, Path]) -> None:
    """Nothing is deleted, except with --ignore-registry; the registry is not queried if nothing would be deleted."""
    registry, target = synced
    registry.calls_left = 0
    before = contents(target)
    cases: list[tuple[Callable[[], SimulatedRegistry | None], str]] = [
        (lambda: registry, "prune.registry"),
        (lambda: None, "prune.no-registry"),
    ]
    for open_registry, code in cases:
        with pytest.raises(RepogenError) as caught:
            prune(target, (), PruneOptions(keep=0), open_registry)
        assert (caught.value.code, int(caught.value.exit_code)) == (code, 8)
        assert "--ignore-registry" in caught.value.hint
        assert contents(target) == before
        assert prune(target, (), PruneOptions(keep=3), open_registry).deleted == ()
    assert len(prune(target, (), PruneOptions(keep=0, ignore_registry=True), lambda: None).deleted) == 2


def test_command(five: Publisher, tmp_path: Path) -> None:
    """The command prints a row per version; wrong arguments and repositories are errors."""
    arguments = ["prune", "--repository", str(five.repository)]
    result = CliRunner().invoke(main, [*arguments, "--keep", "4", "--dry-run"])
    assert result.exit_code == 0
    assert result.output.endswith("would be deleted\n")
    document = json.loads(CliRunner().invoke(main, [*arguments, "--keep", "4", "--json"]).output)
    assert (document["deleted"], [row["deleted"] for row in document["versions"]]) == (1, [False] * 4 + [True])
    for wrong in (["--keep", "-1"], [], ["--keep", "1", "--older-than", "30"]):
        assert CliRunner().invoke(main, [*arguments, *wrong]).exit_code == 2
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(main, ["prune", "--keep", "1", "--repository", str(tmp_path / "empty")])
    assert (result.exit_code, result.output) == (0, "0 versions deleted\n")
    result = CliRunner().invoke(main, ["prune", "--keep", "1", "--repository", str(tmp_path / "none")])
    assert (result.exit_code, "is not a directory" in result.output) == (2, True)
    with pytest.raises(RepogenError, match="must not be negative"):
        repogen.prune(keep=-1, repository=five.repository)


def test_version_that_is_nested_too_deeply_for_recursion(five: Publisher) -> None:
    """It is deleted, and no staging directory remains, which the next command could not sweep."""
    with deep_tree(five.repository / "m" / "1"):
        repogen.prune("m", keep=1, repository=five.repository)
        assert versions(five.repository / "m") == [5]
        assert [path.name for path in five.repository.parent.iterdir() if "repogen-stage" in path.name] == []


@pytest.mark.parametrize("swapped", ["before", "during"])
def test_link_that_replaces_a_model_is_not_followed(
    five: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """Another user who may write to the repository could otherwise delete directories anywhere."""
    model, other, moved = five.repository / "m", tmp_path / "other", tmp_path / "moved"
    for number in range(1, 6):
        (other / str(number)).mkdir(parents=True)

    def swap() -> None:
        if not moved.exists():
            model.rename(moved)
            model.symlink_to(other)

    class Swapping(Disk):
        def rename(self, source: Path, target: Path) -> None:
            swap()
            super().rename(source, target)

    def discard_after(*arguments: Any) -> None:
        swap()
        discard(*arguments)

    if swapped == "before":
        monkeypatch.setattr(sys.modules["repogen.versions.prune"], "discard", discard_after)
    options = PruneOptions(keep=1)
    with pytest.raises(PublishError, match="cannot be deleted"):
        prune(five.repository, ("m",), options, lambda: None, Swapping())
    assert sorted(path.name for path in other.iterdir()) == ["1", "2", "3", "4", "5"]
    assert len(list(moved.iterdir())) == {"before": 6, "during": 5}[swapped]


def test_target_of_a_link_is_kept(five: Publisher) -> None:
    """The version that is served may be a link to an older one, or have links to its files."""
    model = five.repository / "m"
    (model / "6").symlink_to("2")
    (model / "7").symlink_to("6")
    (model / "5" / "model.onnx").unlink()
    (model / "5" / "model.onnx").symlink_to("../3/model.onnx")
    linked = "a version that is kept has a link to it"
    report = repogen.prune("m", keep=3, repository=five.repository)
    newest = "one of the 3 newest"
    assert keep_reasons(report) == {7: "served", 6: newest, 5: newest, 3: linked, 2: linked}
    assert (model / "7" / "model.onnx").is_file()
    assert (model / "5" / "model.onnx").is_file()
