"""Tests of sync by alias, entry state and damage, its preconditions, and repeated runs."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.registry import EntryState
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncOptions, SyncReport
from repogen.errors import PublishError, RepogenError, SpecError, TrackingError
from repogen.registry.sync.sync import sync
from repogen.repository.filesystem import Disk
from repogen.repository.layout import archive_dir
from repogen.repository.lock import locked
from repogen.repository.mirror import synced_repository
from tests.support.simulated_registry import CONFIG, SimulatedRegistry, version_of_bytes

from .conftest import contents, served

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.artifacts.registry import RegistryEntry

    from .conftest import Register

CHAMPION = SyncOptions("champion")
PRUNE = SyncOptions("champion", prune=True)


def actions(report: SyncReport) -> list[tuple[str, str, int | None]]:
    """Return the model, action and version of each row."""
    return [(row.model, row.action.value, row.version) for row in report.versions]


def test_publishes_with_the_registry_version_number(
    registry: SimulatedRegistry, register: Register, repository: Path
) -> None:
    """Only the aliased version is published, under its registry number, world-readable, with synced ownership."""
    register("m", b"1")
    register("m", b"2", "champion")
    register("other", b"1", "challenger")
    report = sync(registry, repository, CHAMPION, Silent())
    assert actions(report) == [("m", "published", 2)]
    assert (report.changed, report.exit_code) == (True, 0)
    assert sorted(path.name for path in repository.iterdir()) == [".repogen.lock", "m", "repogen.json"]
    assert sorted(path.name for path in (repository / "m").iterdir()) == ["2", "config.pbtxt"]
    assert served(repository) == 2
    assert (repository / "repogen.json").read_text() == '{"schema": 1, "kind": "synced", "aliases": ["champion"]}\n'
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (repository / "m").rglob("*")}
    assert modes == {(True, 0o755), (False, 0o644)}
    assert [path.name for path in repository.parent.iterdir()] == ["repo"]


def test_second_run_changes_nothing(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A second run changes no byte and no modification time, with and without --prune."""
    for name in ("a", "b", "c"):
        register(name, b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    registry.point("c", "champion", None)
    sync(registry, repository, CHAMPION, Silent())
    before = contents(repository)
    report = sync(registry, repository, CHAMPION, Silent())
    assert actions(report) == [("a", "kept", 1), ("b", "kept", 1)]
    assert not report.changed
    assert before == contents(repository)
    sync(registry, repository, PRUNE, Silent())
    before = contents(repository)
    assert not sync(registry, repository, PRUNE, Silent()).changed
    assert before == contents(repository)


def test_follows_the_alias_back_and_forth(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """Each move changes the served version, even with other inputs; the rollback needs no download."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    register("m", b"2", "champion", batch=0, shape=("batch", 5))
    (row,) = sync(registry, repository, CHAMPION, Silent()).versions
    assert SyncedVersion("m", SyncAction.PUBLISHED, 2, "replaces version 1") == row
    assert served(repository) == 2
    registry.point("m", "champion", 1)
    shutil.rmtree(registry.artifacts(registry.entries("m")[1]))
    (row,) = sync(registry, repository, CHAMPION, Silent()).versions
    assert SyncedVersion("m", SyncAction.PUBLISHED, 1, "replaces version 2") == row
    assert served(repository) == 1
    registry.point("m", "champion", None)
    assert actions(sync(registry, repository, CHAMPION, Silent())) == [("m", "unserved", 1)]  # not 2, which is there


@pytest.mark.parametrize("policy", ["", "latest { num_versions: 2 }", "all { }", "specific { versions: [ 1, 7 ] }"])
def test_version_policy_is_replaced(
    registry: SimulatedRegistry, register: Register, repository: Path, policy: str
) -> None:
    """A missing or existing version policy is replaced; no other line of config.pbtxt changes."""
    register("m", b"1", "champion", policy=policy)
    sync(registry, repository, CHAMPION, Silent())
    assert served(repository) == 1


def test_model_is_archived_and_restored(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A model without its alias is moved to the archive, and restored from it when the alias returns."""
    register("m", b"1", "champion")
    register("stays", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    inode = (repository / "m").stat().st_ino
    registry.point("m", "champion", None)
    report = sync(registry, repository, CHAMPION, Silent())
    assert actions(report) == [("m", "unserved", 1), ("stays", "kept", 1)]
    assert not (repository / "m").exists()
    assert served(archive_dir(repository)) == 1
    registry.point("m", "champion", 1)
    shutil.rmtree(registry.artifacts(registry.entries("m")[0]))
    assert sync(registry, repository, CHAMPION, Silent()).versions[0].note == "restored from repo.unserved"
    assert served(repository) == 1
    assert inode == (repository / "m").stat().st_ino
    assert list(archive_dir(repository).iterdir()) == []


def test_archived_model_returns_with_another_version(
    registry: SimulatedRegistry, register: Register, repository: Path
) -> None:
    """An archived model whose alias returns on a new version is completed before it is served."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    registry.point("m", "champion", None)
    sync(registry, repository, CHAMPION, Silent())
    (archive_dir(repository) / "m" / "1" / "model.onnx").write_bytes(b"spoilt")
    register("m", b"2", "champion")
    assert actions(sync(registry, repository, CHAMPION, Silent())) == [("m", "published", 2)]
    assert served(repository) == 2


def test_prune(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """Only --prune deletes old versions, archived models, and models without an alias; foreign files stay."""
    for name in ("a", "b", "c"):
        register(name, b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    register("a", b"2", "champion")
    registry.point("b", "champion", None)
    sync(registry, repository, CHAMPION, Silent())
    registry.point("c", "champion", None)
    (repository / "a" / "labels.txt").touch()
    (repository / "a" / "9").mkdir()
    for dry_run, deleted in ((True, "would be deleted"), (False, "deleted")):
        report = sync(registry, repository, replace(PRUNE, dry_run=dry_run), Silent())
        assert f"was not served; {deleted} from {archive_dir(repository).name}" in {row.note for row in report.versions}
    assert actions(report) == [("a", "kept", 2), ("a", "pruned", 1), ("b", "pruned", 1), ("c", "pruned", 1)]
    assert sorted(path.name for path in (repository / "a").iterdir()) == ["2", "9", "config.pbtxt", "labels.txt"]
    assert [path.name for path in repository.iterdir() if path.is_dir()] == ["a"]
    assert list(archive_dir(repository).iterdir()) == []


def test_prune_deletes_the_replaced_version(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A version is deleted in the run that replaces it, after the new one is served."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    register("m", b"2", "champion")
    assert actions(sync(registry, repository, PRUNE, Silent())) == [("m", "published", 2), ("m", "pruned", 1)]
    assert served(repository) == 2
    assert sorted(path.name for path in (repository / "m").iterdir()) == ["2", "config.pbtxt"]


def test_dry_run_creates_nothing(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A dry run reports the changes and does not create the repository."""
    register("m", b"1", "champion")
    report = sync(registry, repository, SyncOptions("champion", dry_run=True), Silent())
    assert (actions(report), report.changed) == ([("m", "published", 1)], True)
    assert not repository.parent.exists()


def test_model_option_limits_the_sync(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """With --model, other models do not change, and an unknown name is an error."""
    for name in ("a", "b"):
        register(name, b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    registry.point("a", "champion", None)
    register("b", b"2", "champion")
    register("c", b"1", "champion")
    assert actions(sync(registry, repository, SyncOptions("champion", ("b",)), Silent())) == [("b", "published", 2)]
    assert sorted(path.name for path in repository.iterdir() if path.is_dir()) == ["a", "b"]
    with pytest.raises(SpecError, match="'nobody' has the alias champion") as caught:
        sync(registry, repository, SyncOptions("champion", ("b", "nobody")), Silent())
    assert caught.value.code == "sync.no-such-model"
    register("digits", b"1", "champion")
    with pytest.raises(SpecError) as caught:
        sync(registry, repository, SyncOptions("champion", ("digitz",)), Silent())
    assert caught.value.hint == 'did you mean "digits"?'


def test_pending_entry_is_ignored(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """An alias on an unpublished version changes nothing."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    register("m", b"2", "champion", state=EntryState.PENDING)
    before = contents(repository)
    report = sync(registry, repository, PRUNE, Silent())
    assert actions(report) == [("m", "ignored", 2)]
    assert "pending; run `repogen build` again" in report.versions[0].note
    assert before == contents(repository)


def test_foreign_entry_stops_the_sync(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A version that repogen did not build stops the sync before any change, with the commands that build it."""
    register("a", b"1", "champion")
    registry.register_foreign("x", "champion")
    registry.register_foreign("y", "champion")
    with pytest.raises(TrackingError, match="x version 1, y version 1") as caught:
        sync(registry, repository, CHAMPION, Silent())
    assert caught.value.code == "sync.foreign-entry"
    assert "repogen build --model x && repogen promote x --alias champion" in caught.value.hint
    assert not repository.parent.exists()
    assert actions(sync(registry, repository, SyncOptions("champion", ("a",)), Silent())) == [("a", "published", 1)]


@pytest.mark.parametrize("file_name", ["model.onnx", "manifest.json", "config.pbtxt", "version"])
def test_local_damage_is_repaired(
    registry: SimulatedRegistry, register: Register, repository: Path, file_name: str
) -> None:
    """A version with changed or missing files is downloaded again, and an edited config.pbtxt is replaced."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    version = repository / "m" / "1"
    if file_name == "version":
        shutil.rmtree(version)
    else:
        (version.parent if file_name == "config.pbtxt" else version).joinpath(file_name).write_text("spoilt {")
    assert actions(sync(registry, repository, CHAMPION, Silent())) == [("m", "published", 1)]
    assert served(repository) == 1


def test_edited_config_and_new_version_are_swapped_together(
    registry: SimulatedRegistry, register: Register, repository: Path
) -> None:
    """If an edited config would serve the new version, both are swapped in at once with foreign files."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    (repository / "m" / "config.pbtxt").write_text('name: "m"\nversion_policy { latest { num_versions: 1 } }\n')
    (repository / "m" / "labels.txt").touch()
    inode = (repository / "m").stat().st_ino
    register("m", b"2", "champion")
    sync(registry, repository, CHAMPION, Silent())
    assert served(repository) == 2
    assert inode != (repository / "m").stat().st_ino
    assert sorted(path.name for path in (repository / "m").iterdir()) == ["1", "2", "config.pbtxt", "labels.txt"]


@pytest.mark.parametrize("what", ["altered", "gone", "other", "more", "link"])
def test_artifacts_must_match_their_entry(
    registry: SimulatedRegistry, register: Register, repository: Path, what: str
) -> None:
    """Artifacts that do not match their entry fail only their model, which does not change."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    entry = register("m", b"2", "champion")
    register("n", b"1", "champion")
    damage_artifacts(registry, entry, what)
    before = {key: value for key, value in contents(repository / "m").items() if key.startswith("m/")}
    report = sync(registry, repository, CHAMPION, Silent())
    assert actions(report) == [("m", "failed", 2), ("n", "published", 1)]
    assert report.exit_code == 8
    assert before == {key: value for key, value in contents(repository / "m").items() if key.startswith("m/")}
    assert served(repository) == 1


def damage_artifacts(registry: SimulatedRegistry, entry: RegistryEntry, what: str) -> None:
    """Damage the registry's artifacts of a version."""
    place = registry.artifacts(entry)
    if what == "altered":
        (place / "model.onnx").write_bytes(b"x")
    elif what == "gone":
        shutil.rmtree(place)
    elif what == "other":
        shutil.rmtree(place)
        shutil.copytree(place.parent / "1", place)
    else:
        registry.extra_entries = {entry.name: what}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name: "y"', 'name: "y" label_filename: "missing.txt"', "output[0].label_filename names 'missing.txt'"),
        ('name: "y"', 'name: "y" label_filename: "/etc/passwd"', "output[0].label_filename names '/etc/passwd'"),
        ('"onnxruntime"', '"python"', "backend 'python' needs model.py"),
    ],
)
def test_config_that_names_other_files_is_rejected(
    registry: SimulatedRegistry, tmp_path: Path, repository: Path, old: str, new: str, problem: str
) -> None:
    """Files that a config names must be in the version; the served version stays."""
    registry.register(version_of_bytes(tmp_path / "1"), "champion")
    sync(registry, repository, CHAMPION, Silent())
    registry.register(version_of_bytes(tmp_path / "2", template=CONFIG.replace(old, new)), "champion")
    before = contents(repository / "m")
    (row,) = sync(registry, repository, CHAMPION, Silent()).versions
    assert row.error is not None
    assert (row.error.code, problem in row.error.message) == ("sync.config", True)
    assert contents(repository / "m") == before


def test_invalid_config_is_rejected(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A config that violates the rules fails with exit code 7 even if its digest matches."""
    register("m", b"1", "champion", policy="latest { num_versions: 1 } }\nwarmup {")
    report = sync(registry, repository, CHAMPION, Silent())
    assert report.versions[0].error is not None
    assert (report.versions[0].error.code, report.exit_code) == ("sync.config", 7)
    assert not repository.exists()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ('parameters { key: "EXECUTION_ENV_PATH" }', "EXECUTION_ENV_PATH runs code"),
        ('parameters { key: "ep.context_file_path" value { string_value: "/tmp/x" } }', "read or write files"),
        ('instance_group { name: "a;b" }', "passes to a shell"),
    ],
)
def test_version_that_triton_may_not_load_is_not_published(
    registry: SimulatedRegistry, register: Register, repository: Path, fields: str, reason: str
) -> None:
    """A registry is not trusted: neither a new model nor a new version runs code in the server."""
    template = CONFIG + fields.replace("{", "{{").replace("}", "}}")
    register("new", b"1", "champion", template=template)
    register("m", b"1", "champion")
    assert actions(sync(registry, repository, CHAMPION, Silent()))[0] == ("m", "published", 1)
    register("m", b"2", "champion", template=template)
    report = sync(registry, repository, CHAMPION, Silent())
    assert actions(report) == [("m", "failed", 2), ("new", "failed", 1)]
    for version in report.versions:
        assert version.error is not None
        assert version.error.code == "config.not-admitted"
        assert reason in version.error.message
    assert served(repository) == 1
    assert not (repository / "new").exists()


def test_version_is_not_moved_next_to_code(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """Triton would run a library in the model's directory instead of its own."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    (repository / "m" / "libtriton_onnxruntime.so").touch()
    register("m", b"2", "champion")
    (row,) = sync(registry, repository, CHAMPION, Silent()).versions
    assert row.error is not None
    assert "libtriton_onnxruntime.so is a file that Triton would run as code" in row.error.message
    assert not (repository / "m" / "2").exists()


@pytest.mark.parametrize("name", ["../m", "m/n", ".m", "repogen.json"])
def test_unsafe_model_names_are_rejected(
    registry: SimulatedRegistry, register: Register, repository: Path, name: str
) -> None:
    """A model name that leaves the repository or is hidden fails only that model."""
    register("a", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    version = version_of_bytes(repository.parent.parent / "hostile", "m", b"1")
    registry.register(version, "champion", name=name)
    report = sync(registry, repository, CHAMPION, Silent())
    assert {row.action for row in report.versions if row.model == name} == {SyncAction.FAILED}
    assert report.exit_code == 7
    assert sorted(path.name for path in repository.iterdir()) == [".repogen.lock", "a", "repogen.json"]


@pytest.mark.parametrize("calls", range(10))
def test_registry_goes_down(registry: SimulatedRegistry, register: Register, repository: Path, calls: int) -> None:
    """If the registry fails at any call, each model is old or new, with exit code 8; the next run completes."""
    for name in ("a", "b", "c"):
        register(name, b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    for name in ("a", "b"):
        register(name, b"2", "champion")
    registry.point("c", "champion", None)
    registry.calls_left = calls
    try:
        code = sync(registry, repository, CHAMPION, Silent()).exit_code
    except TrackingError as error:
        code = int(error.exit_code)
    assert code == (8 if calls < 8 else 0)
    completion = [calls >= 5, calls >= 7, calls >= 8]
    assert [served(repository, name) for name in ("a", "b")] == [2 if changed else 1 for changed in completion[:2]]
    assert (repository / "c").exists() is not completion[2]
    assert [path.name for path in repository.parent.iterdir() if "stage" in path.name] == []
    registry.calls_left = None
    sync(registry, repository, CHAMPION, Silent())
    assert [served(repository, name) for name in ("a", "b")] == [2, 2]
    assert not (repository / "c").exists()


class Overtaken(SimulatedRegistry):
    """A registry whose alias moves, followed by another sync, during a download."""

    other: Path | None = None

    def fetch(self, entry: RegistryEntry, directory: Path) -> Path:
        """Download, while the other sync runs to completion."""
        if self.other is not None:
            repository, self.other = self.other, None
            self.point(entry.name, "champion", 3)
            sync(self, repository, CHAMPION, Silent())
        return super().fetch(entry, directory)


def test_alias_moves_during_a_download(tmp_path: Path, repository: Path) -> None:
    """A slow sync does not replace the version of a later alias."""
    registry = Overtaken(tmp_path / "registry")
    for n in range(3):
        registry.register(version_of_bytes(tmp_path / str(n), "m", bytes([n])))
    registry.point("m", "champion", 1)
    sync(registry, repository, CHAMPION, Silent())
    registry.point("m", "champion", 2)
    registry.other = repository
    (row,) = sync(registry, repository, CHAMPION, Silent()).versions
    assert row.error is not None
    assert (row.error.code, row.error.exit_code) == ("sync.alias-moved", 8)
    assert served(repository) == 3


def test_registry_without_the_models_is_rejected(
    registry: SimulatedRegistry, register: Register, repository: Path, tmp_path: Path
) -> None:
    """A registry that has none of the repository's models is rejected."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    with pytest.raises(TrackingError, match=r"has none of the models in .*repo \(m\)") as caught:
        sync(SimulatedRegistry(tmp_path / "empty"), repository, CHAMPION, Silent())
    assert caught.value.code == "sync.other-registry"
    assert served(repository) == 1


def test_foreign_model_is_kept(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A model from another source is kept, and not overwritten when its name gets the alias."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    (repository / "mine" / "1").mkdir(parents=True)
    report = sync(registry, repository, PRUNE, Silent())
    assert actions(report) == [("m", "kept", 1), ("mine", "ignored", None)]
    register("mine", b"1", "champion")
    report = sync(registry, repository, PRUNE, Silent())
    assert [row.error.code for row in report.versions if row.error] == ["sync.foreign-model"]
    assert list((repository / "mine").iterdir()) == [repository / "mine" / "1"]


@pytest.mark.parametrize("link", ["m", "m/config.pbtxt"])
def test_symlinks_are_not_followed(
    registry: SimulatedRegistry, register: Register, repository: Path, tmp_path: Path, link: str
) -> None:
    """A symlink in place of a model or its config is rejected."""
    register("m", b"1", "champion")
    register("n", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    (repository / link).rename(tmp_path / "away")
    (repository / link).symlink_to(tmp_path / "away")
    registry.point("m", "champion", None)
    report = sync(registry, repository, CHAMPION, Silent())
    assert [row.error.code for row in report.versions if row.error] == ["publish.symlink"]
    assert (repository / link).is_symlink()


def test_symlinked_archive_is_not_followed(
    registry: SimulatedRegistry, register: Register, repository: Path, tmp_path: Path
) -> None:
    """Nothing is moved through, or deleted behind, a symlinked archive."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    (tmp_path / "away" / "precious").mkdir(parents=True)
    archive_dir(repository).symlink_to(tmp_path / "away")
    with pytest.raises(PublishError, match="is a symlink"):
        sync(registry, repository, PRUNE, Silent())
    assert (tmp_path / "away" / "precious").is_dir()


@pytest.mark.parametrize("mode", [0o1777, 0o1775])
def test_archive_of_another_user_is_not_used(
    registry: SimulatedRegistry, register: Register, repository: Path, mode: int
) -> None:
    """It could have been planted next to the repository, and its models could be replaced after they are verified."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    archive_dir(repository).mkdir()
    (repository / "m").rename(archive_dir(repository) / "m")
    os.chown(archive_dir(repository), 65534, 65534)
    os.chown(repository.parent, -1, 65534)
    repository.parent.chmod(mode)
    with pytest.raises(PublishError, match="belongs to another user") as raised:
        sync(registry, repository, CHAMPION, Silent())
    assert raised.value.code == "sync.foreign-archive"
    assert not (repository / "m").exists()
    os.chown(archive_dir(repository), os.getuid(), os.getgid())
    sync(registry, repository, CHAMPION, Silent())
    assert (repository / "m" / "config.pbtxt").exists()


def test_archive_is_not_overwritten(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """An archived directory with the same name is not overwritten."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    (archive_dir(repository) / "m").mkdir(parents=True)
    registry.point("m", "champion", None)
    (row,) = sync(registry, repository, CHAMPION, Silent()).versions
    assert row.error is not None
    assert row.error.code == "sync.in-the-way"
    assert served(repository) == 1


def test_repository_of_builds_is_rejected(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A repository that builds own, or one with models and no owner, is rejected."""
    register("m", b"1", "champion")
    (repository / "old").mkdir(parents=True)
    with pytest.raises(PublishError, match=r"contains directories, but no repogen\.json") as caught:
        sync(registry, repository, CHAMPION, Silent())
    assert caught.value.code == "sync.built-repository"
    (repository / "old").rmdir()
    (repository / "repogen.json").write_text('{"schema": 1, "kind": "built"}')
    with pytest.raises(PublishError, match="written by `repogen build`"):
        sync(registry, repository, CHAMPION, Silent())
    assert [path.name for path in repository.iterdir()] == ["repogen.json"]


def test_other_alias_is_rejected(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """A repository follows one alias, so a mistyped alias does not empty it."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    with pytest.raises(PublishError, match="follows the alias champion, not campion") as caught:
        sync(registry, repository, SyncOptions("campion"), Silent())
    assert caught.value.code == "sync.other-alias"
    assert served(repository) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", '{"kind": "synced"}', '{"schema": 1, "kind": "x"}', '{"schema": 2, "kind": "built"}',
             '{"schema": 1, "kind": "synced", "aliases": [1]}', "\xff"]
)  # fmt: skip
def test_damaged_ownership_file(registry: SimulatedRegistry, register: Register, repository: Path, text: str) -> None:
    """An invalid ownership file stops build and sync with exit code 7."""
    register("m", b"1", "champion")
    repository.mkdir(parents=True)
    (repository / "repogen.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RepogenError, match=r"repogen\.json: ") as caught:
        sync(registry, repository, CHAMPION, Silent())
    assert caught.value.exit_code == 7


def test_nothing_to_serve(registry: SimulatedRegistry, repository: Path) -> None:
    """Without a promoted version, a sync does nothing and creates no repository."""
    report = sync(registry, repository, CHAMPION, Silent())
    assert (report.versions, report.exit_code, repository.exists()) == ((), 0, False)


def test_sync_waits_for_the_lock(repository: Path) -> None:
    """A sync waits while another publish holds the lock, and then reports a timeout."""
    repository.mkdir(parents=True)
    with (
        locked(repository, 0.0),
        pytest.raises(PublishError, match="another process has been publishing"),
        synced_repository(repository, "champion", Disk(), 0.0),
    ):
        pass


def test_unwritable_parent_directory(registry: SimulatedRegistry, register: Register, tmp_path: Path) -> None:
    """If the parent directory is not writable, the hint explains the requirement without flags of `build`."""
    register("m", b"1", "champion")
    (tmp_path / "file").touch()
    with pytest.raises(PublishError, match="cannot be created") as caught:
        sync(registry, tmp_path / "file" / "repo", CHAMPION, Silent())
    assert "must be writable" in caught.value.hint
    assert "--stage-dir" not in caught.value.hint


def test_concurrent_syncs(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """Four concurrent syncs publish each model once, without failures or leftovers."""
    for name in ("a", "b"):
        register(name, b"1", "champion")
    sync(registry, repository, CHAMPION, Silent())
    for name in ("a", "b", "c"):
        register(name, b"2", "champion")
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: sync(registry, repository, CHAMPION, Silent()), range(4)))
    assert [row.error for report in reports for row in report.versions if row.error] == []
    published = [row.model for report in reports for row in report.versions if row.action is SyncAction.PUBLISHED]
    assert sorted(published) == ["a", "b", "c"]
    assert [served(repository, name) for name in ("a", "b", "c")] == [2, 2, 1]
    assert [path.name for path in repository.parent.iterdir()] == ["repo"]


class CannotSwap(Disk):
    """A filesystem without ``renameat2(RENAME_EXCHANGE)``."""

    def exchange(self, first: Path, second: Path) -> None:
        """Raise the error of an unsupported operation."""
        raise PublishError(f"{first} and {second} cannot be swapped", code="publish.no-exchange")


def test_filesystem_that_cannot_swap(registry: SimulatedRegistry, register: Register, repository: Path) -> None:
    """Damage is reported with the fix, and every other change works."""
    register("m", b"1", "champion")
    sync(registry, repository, CHAMPION, Silent(), CannotSwap())
    (repository / "m" / "1" / "model.onnx").write_bytes(b"spoilt")
    (row,) = sync(registry, repository, CHAMPION, Silent(), CannotSwap()).versions
    assert row.error is not None
    assert f"remove {repository / 'm'} while no Triton serves it" in row.error.hint
    assert (repository / "m" / "1" / "model.onnx").read_bytes() == b"spoilt"
    register("m", b"2", "champion")
    sync(registry, repository, PRUNE, Silent(), CannotSwap())
    assert served(repository) == 2


def test_warmup_data_is_published_with_its_version(
    registry: SimulatedRegistry, register: Register, repository: Path
) -> None:
    """Warmup data is published where Triton reads it, and restored when it is lost."""
    for number, labels in ((1, ("a", "b")), (2, ("c", "d"))):
        register("m", bytes(number), "champion", labels=labels)
        sync(registry, repository, CHAMPION, Silent())
        assert served(repository) == number
    (data_file,) = (repository / "m" / "2").glob("warmup-*.bin")
    assert {path.read_text() for path in (repository / "m" / "warmup").iterdir()} == {"('a', 'b')", "('c', 'd')"}
    shutil.rmtree(repository / "m" / "warmup")
    assert actions(sync(registry, repository, CHAMPION, Silent())) == [("m", "published", 2)]
    assert (repository / "m" / "warmup" / data_file.name).read_bytes() == data_file.read_bytes()


def test_labels_are_published_with_their_version(
    registry: SimulatedRegistry, register: Register, repository: Path
) -> None:
    """Label files exist before config.pbtxt names them, and are restored when lost or damaged."""
    register("m", b"1", "champion", labels=("a", "b"))
    sync(registry, repository, CHAMPION, Silent())
    (first,) = (repository / "m").glob("labels-*.txt")
    assert first.read_text() == "a\nb\n"
    first.unlink()
    assert actions(sync(registry, repository, CHAMPION, Silent())) == [("m", "published", 1)]
    first.write_text("spoiled")
    sync(registry, repository, CHAMPION, Silent())
    assert first.read_text() == "a\nb\n"
    register("m", b"2", "champion", labels=("c", "d"))
    sync(registry, repository, CHAMPION, Silent())
    assert served(repository) == 2
    assert {path.read_text() for path in (repository / "m").glob("labels-*.txt")} == {"a\nb\n", "c\nd\n"}
