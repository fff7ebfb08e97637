"""What publish accepts and rejects, and the repository afterward."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repogen.errors import PublishError
from repogen.files.work_limit import is_counted
from repogen.repository import transaction
from repogen.repository.decode import read_record
from repogen.repository.filesystem import Disk
from repogen.repository.layout import versions
from repogen.repository.lock import locked
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.publish import publish
from repogen.repository.recovery import recover

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Served, Stage

PUBLISH = """
import pickle, sys
from pathlib import Path
from repogen.repository.publish import publish
staged = pickle.loads(Path(sys.argv[1]).read_bytes())
sys.stdin.read()  # wait for the starting signal
print(publish(staged, Path(sys.argv[2]), breaking=False).version)
"""


def test_first_and_next(stage: Stage, repository: Path) -> None:
    """Versions are numbered from 1, and the result contains the version's path and its model's digest."""
    first, second = stage(b"1"), stage(b"2")
    one, two = publish(first, repository, breaking=False), publish(second, repository, breaking=False)
    assert [one.version, two.version] == [1, 2]
    assert repository / "m" / "2" == two.path
    assert second.manifest.sha256 == two.sha256
    assert second.manifest == read_manifest(two.path)
    assert damaged_files(two.path, second.manifest) == ()


def test_published_files_are_readable_by_all_users(stage: Stage, repository: Path) -> None:
    """Directories are 0755 and files 0644, whatever their modes were: Triton may run as a different user."""
    staged = stage()
    for path in staged.model_dir.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    staged.model_dir.chmod(0o700)
    publish(staged, repository, breaking=False)
    modes = {
        (path.is_dir(), path.stat().st_mode & 0o777) for path in (repository / "m", *(repository / "m").rglob("*"))
    }
    assert {(True, 0o755), (False, 0o644)} == modes


def test_model_directory_of_another_user(stage: Stage, repository: Path) -> None:
    """Another user created it in a repository like /tmp, and could replace the version after it is published."""
    publish(stage(b"1"), repository, breaking=False)
    repository.chmod(0o1777)
    publish(stage(b"2"), repository, breaking=False)
    os.chown(repository / "m", 65534, 65534)
    with pytest.raises(PublishError, match="m belongs to another user, who could replace the files") as caught:
        publish(stage(b"3"), repository, breaking=False)
    assert caught.value.code == "publish.foreign-model"
    assert versions(repository / "m") == [1, 2]
    os.chown(repository / "m", os.geteuid(), -1)
    for path in (repository / "m" / "2", repository / ".repogen.lock"):
        (repository / "m").chmod(0o1777)
        os.chown(path, 65534, -1)
        with pytest.raises(PublishError, match=f"{path.name} belongs to another user"):
            publish(stage(b"3"), repository, breaking=False)
        os.chown(path, os.geteuid(), -1)
    os.chown(repository / "m", 65534, 65534)
    repository.chmod(0o775)  # members of its group can replace every model
    publish(stage(b"3"), repository, breaking=False)


def test_two_processes(stage: Stage, repository: Path, tmp_path: Path) -> None:
    """Two first publishes of one model at once become versions 1 and 2, both complete."""
    processes = []
    for n in range(2):
        pickled = tmp_path / f"{n}.pickle"
        pickled.write_bytes(pickle.dumps(stage(bytes([n]) * 100)))
        command = [sys.executable, "-c", PUBLISH, str(pickled), str(repository)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdin
        process.stdin.close()
    numbers = []
    for process in processes:
        with process:
            assert process.stdout
            numbers.append(int(process.stdout.read()))
    assert sorted(numbers) == [1, 2]
    for number in numbers:
        directory = repository / "m" / str(number)
        assert damaged_files(directory, read_manifest(directory)) == ()


def test_signature_change_is_rejected(stage: Stage, repository: Path) -> None:
    """Every difference is listed, with a hint; nothing is written."""
    publish(stage(), repository, breaking=False)
    with pytest.raises(PublishError, match=r"differ from version 1") as caught:
        publish(stage(shape=("batch", 5)), repository, breaking=False)
    assert caught.value.code == "publish.breaking"
    assert "input 'x' was float32 [-1, 4], is float32 [-1, 5]" in caught.value.message
    assert "output 'y' was float32 [-1, 4], is float32 [-1, 5]" in caught.value.message
    assert "--allow-breaking" in caught.value.hint
    assert versions(repository / "m") == [1]


def test_dim_names_do_not_matter(stage: Stage, repository: Path) -> None:
    """A renamed symbolic dim does not change the signature; a fixed dim does."""
    publish(stage(), repository, breaking=False)
    assert publish(stage(shape=("rows", 4)), repository, breaking=False).version == 2
    with pytest.raises(PublishError):
        publish(stage(shape=(8, 4)), repository, breaking=False)


def test_breaking_change_does_not_serve_an_incompatible_version(stage: Stage, repository: Path) -> None:
    """--allow-breaking does not permit a version policy under which Triton fails to load an old version."""
    publish(stage(), repository, breaking=False)
    with pytest.raises(PublishError, match="version 1: input 'x' was") as caught:
        publish(stage(shape=("batch", 5), policy="all {}"), repository, breaking=True)
    assert caught.value.code == "publish.version-policy"


@pytest.mark.parametrize("before", [0, 1, 2])
def test_policy_that_serves_nothing(stage: Stage, repository: Path, before: int) -> None:
    """A version policy that names neither an existing version nor the new one is rejected."""
    for _ in range(before):
        publish(stage(), repository, breaking=False)
    with pytest.raises(PublishError, match="Triton would serve nothing") as caught:
        publish(stage(policy="specific { versions: 7 }"), repository, breaking=False)
    assert caught.value.code == "publish.version-policy"
    assert f"name {before + 1} in" in caught.value.hint
    assert list(range(1, before + 1)) == versions(repository / "m")
    staged = stage(policy=f"specific {{ versions: {before + 1} }}")
    assert before + 1 == publish(staged, repository, breaking=False).version


class _UnlimitedRenames(Disk):
    """A disk that rejects renames that a limit on processor time could interrupt."""

    renames = 0

    def rename(self, source: Path, target: Path) -> None:
        """Rename outside of all limits."""
        assert not is_counted()
        self.renames += 1
        super().rename(source, target)


def test_linked_versions_are_read_once_and_renames_are_not_limited(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest may have 16 MiB, and thousands of links in a repository that others wrote can lead to it."""
    publish(stage(), repository, breaking=False)
    for number in (2, 3, 4):
        (repository / "m" / str(number)).symlink_to("1")
    reads = []

    def read(*arguments: Any) -> Any:
        reads.append(is_counted())
        return read_record(*arguments)

    monkeypatch.setattr("repogen.repository.manifest.read_record", read)
    disk = _UnlimitedRenames()
    assert publish(stage(policy="all {}"), repository, breaking=False, filesystem=disk).version == 5
    assert reads == [True]
    assert disk.renames >= 2


@pytest.mark.parametrize("policy", ["", "all {}"])
def test_link_that_replaces_the_model_is_not_followed(
    stage: Stage, repository: Path, tmp_path: Path, policy: str
) -> None:
    """Another user who may write to the repository could otherwise make a publish write anywhere."""
    publish(stage(), repository, breaking=False)
    model, other, moved = repository / "m", tmp_path / "other", tmp_path / "moved"
    other.mkdir()
    (other / "config.pbtxt").write_text("kept")

    class Swapping(Disk):
        def rename(self, source: Path, target: Path) -> None:
            if not moved.exists():
                model.rename(moved)
                model.symlink_to(other)
            super().rename(source, target)

    publish(stage(policy=policy), repository, breaking=False, filesystem=Swapping())
    assert [path.name for path in other.iterdir()] == ["config.pbtxt"]
    assert (other / "config.pbtxt").read_text() == "kept"
    assert versions(moved) == [1, 2]


def test_unverified_batching_is_rejected(stage: Stage, repository: Path) -> None:
    """A version published as not batching is not served by a config that batches."""
    publish(stage(batch=0), repository, breaking=False)
    with pytest.raises(PublishError, match="published with max_batch_size 0, not 8"):
        publish(stage(policy="latest { num_versions: 2 }"), repository, breaking=False)


def test_swap_keeps_old_versions_and_other_files(stage: Stage, repository: Path, served: Served) -> None:
    """A swap keeps the other contents of a model's directory; old versions are the same files, not copies."""
    publish(stage(), repository, breaking=False)
    model = repository / "m"
    (model / "labels.txt").write_text("cat\n")
    (model / "docs").mkdir()
    (model / "docs" / "link").symlink_to("../../elsewhere")
    inode = (model / "1" / "model.onnx").stat().st_ino
    publish(stage(shape=("batch", 5)), repository, breaking=True)
    assert {"1", "2", "config.pbtxt", "docs", "labels.txt"} == {path.name for path in model.iterdir()}
    assert inode == (model / "1" / "model.onnx").stat().st_ino
    assert str((model / "docs" / "link").readlink()) == "../../elsewhere"
    assert served(repository) == [2]


class NoExchange(Disk):
    """A filesystem that does not support a swap, with the kernel's error."""

    def exchange(self, first: Path, second: Path) -> None:
        """Swap what cannot be swapped: the errors are the real ones of renameat2 across filesystems."""
        del first
        super().exchange(Path("/proc/sys"), second)


def test_no_exchange(stage: Stage, repository: Path, served: Served) -> None:
    """Without RENAME_EXCHANGE a change that requires it is rejected with a hint, and undone."""
    publish(stage(), repository, breaking=False)
    with pytest.raises(PublishError, match="cannot swap two directories atomically") as caught:
        publish(stage(shape=("batch", 5)), repository, breaking=True, filesystem=NoExchange())
    assert caught.value.code == "publish.no-exchange"
    assert served(repository) == [1]


def test_foreign_models_are_not_changed(stage: Stage, repository: Path) -> None:
    """A model without manifest, or without versions, is rejected; an empty directory is used."""
    model = repository / "m"
    model.mkdir(parents=True)
    (model / "config.pbtxt").write_text("")
    with pytest.raises(PublishError, match="has no version"):
        publish(stage(), repository, breaking=False)
    (model / "1").mkdir()
    with pytest.raises(PublishError, match=r"no manifest\.json in its newest version 1") as caught:
        publish(stage(), repository, breaking=False)
    assert caught.value.code == "publish.foreign-model"
    (model / "1").rmdir()
    (model / "config.pbtxt").unlink()
    assert publish(stage(), repository, breaking=False).version == 1


def test_damaged_newest_version(stage: Stage, repository: Path) -> None:
    """A broken manifest is reported, and the number is not used again."""
    path = publish(stage(), repository, breaking=False).path
    (path / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(PublishError, match=r"newest version 1 is damaged: m/1/manifest\.json: model: Field required"):
        publish(stage(), repository, breaking=False)


def test_numbers_in_use_are_skipped(stage: Stage, repository: Path) -> None:
    """A directory that Triton reads as version 5 makes the next version 6."""
    publish(stage(), repository, breaking=False)
    (repository / "m" / "5.tmp-abc").mkdir()
    assert publish(stage(), repository, breaking=False).version == 6


@pytest.mark.parametrize("linked", ["m", "m/config.pbtxt", "m/warmup"])
def test_symlinks_are_rejected(stage: Stage, repository: Path, tmp_path: Path, linked: str) -> None:
    """Nothing is written through a link out of the repository."""
    publish(stage(), repository, breaking=False)
    (repository / "m" / "warmup").mkdir()
    (repository / linked).rename(tmp_path / "outside")
    (repository / linked).symlink_to(tmp_path / "outside")
    with pytest.raises(PublishError, match="is a symlink"):
        publish(stage(), repository, breaking=False)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_config_that_is_not_a_file(stage: Stage, repository: Path, make: Callable[[Path], None]) -> None:
    """It is neither read, which could block, nor replaced."""
    publish(stage(), repository, breaking=False)
    (repository / "m" / "config.pbtxt").unlink()
    make(repository / "m" / "config.pbtxt")
    with pytest.raises(PublishError, match=r"config.pbtxt is not a regular file"):
        publish(stage(batch=4), repository, breaking=False)


def test_edited_config_is_not_overwritten(stage: Stage, repository: Path) -> None:
    """A manual edit is rejected with the command that reverts it; the same edit in the spec is accepted."""
    publish(stage(), repository, breaking=False)
    config = repository / "m" / "config.pbtxt"
    config.write_text(stage(batch=16).config.text)
    assert not recover(repository, "m")
    with pytest.raises(PublishError, match="was edited") as caught:
        publish(stage(batch=4), repository, breaking=False)
    assert f"cp {repository}/m/1/config.pbtxt {config}" in caught.value.hint
    assert stage(batch=16).config.text == config.read_text()
    assert publish(stage(batch=16), repository, breaking=False).version == 2
    assert recover(repository, "m")


def test_older_config_is_not_an_edit(stage: Stage, repository: Path) -> None:
    """A config.pbtxt restored from an older version is not an edit; recovery keeps it, publishing replaces it."""
    publish(stage(batch=4), repository, breaking=False)
    publish(stage(batch=8), repository, breaking=False)
    config = repository / "m" / "config.pbtxt"
    config.write_bytes((repository / "m" / "1" / "config.pbtxt").read_bytes())
    assert not recover(repository, "m")
    assert stage(batch=4).config.text == config.read_text()
    publish(stage(batch=8), repository, breaking=False)
    assert stage(batch=8).config.text == config.read_text()


def test_missing_config_is_restored(stage: Stage, repository: Path, served: Served) -> None:
    """A missing config.pbtxt is restored with the next version."""
    publish(stage(), repository, breaking=False)
    (repository / "m" / "config.pbtxt").unlink()
    publish(stage(), repository, breaking=False)
    assert served(repository) == [2]


def test_locked_out(stage: Stage, repository: Path) -> None:
    """A publish that cannot acquire the lock reports its holder, and fails."""
    repository.mkdir()
    with (
        locked(repository, 1.0),
        pytest.raises(PublishError, match=r"another process .*\.repogen\.lock") as caught,
    ):
        publish(stage(), repository, breaking=False, lock_seconds=0.0)
    assert caught.value.code == "publish.locked"


def test_recover_without_repository(repository: Path) -> None:
    """Without a repository the result is False, and nothing is created."""
    assert not recover(repository, "m")
    assert not repository.exists()


def test_incomplete_journal_is_removed(stage: Stage, repository: Path) -> None:
    """A truncated journal is removed, and a manual edit of config.pbtxt is kept."""
    publish(stage(), repository, breaking=False)
    config = repository / "m" / "config.pbtxt"
    config.write_text("edited")
    journal = repository / ".repogen.m.pending.json"
    journal.write_text('{"af')
    assert not recover(repository, "m")
    assert config.read_text() == "edited"
    assert not journal.exists()


def test_first_publish_writes_the_owner(stage: Stage, repository: Path) -> None:
    """The first publish writes repogen.json; later ones do not change it."""
    publish(stage(b"1"), repository, breaking=False)
    mark = repository / "repogen.json"
    assert mark.read_text() == '{"schema": 1, "kind": "built"}\n'
    assert mark.stat().st_mode & 0o777 == 0o644
    mark.write_text('{"schema": 1, "kind": "built", "note": "ours"}')
    publish(stage(b"2"), repository, breaking=False)
    assert mark.read_text() == '{"schema": 1, "kind": "built", "note": "ours"}'
    mark.unlink()
    publish(stage(b"3"), repository, breaking=False)
    assert mark.is_file()


def test_synced_repository_is_rejected(stage: Stage, repository: Path) -> None:
    """A repository that follows a registry is rejected, even if it became one after the build's own check."""
    repository.mkdir()
    (repository / "repogen.json").write_text('{"schema": 1, "kind": "synced", "aliases": ["prod"]}')
    with pytest.raises(PublishError, match="written by `repogen sync`") as caught:
        publish(stage(), repository, breaking=False)
    assert caught.value.code == "publish.synced-repository"
    assert f"repogen sync --alias prod --repository {repository}" in caught.value.hint
    assert caught.value.hint.startswith("build or publish into another repository, then")
    assert sorted(path.name for path in repository.iterdir()) == [".repogen.lock", "repogen.json"]


def test_label_files_are_next_to_the_config(stage: Stage, repository: Path) -> None:
    """Versions with different labels have different files, and a damaged file is replaced."""
    for labels in (("a", "b"), ("c", "d")):
        publish(stage(labels=labels), repository, breaking=False)
    texts = {path.read_text() for path in (repository / "m").glob("labels-*.txt")}
    assert texts == {"a\nb\n", "c\nd\n"}
    (path,) = (repository / "m" / "2").glob("labels-*.txt")
    assert path.read_text() == "c\nd\n"
    (repository / "m" / path.name).write_text("spoiled")
    publish(stage(b"3", labels=("c", "d")), repository, breaking=False)
    assert (repository / "m" / path.name).read_text() == "c\nd\n"


def test_label_file_of_another_version_is_not_replaced(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile version may have a file with the same first digits of the sha256; finding one takes minutes."""
    publish(stage(labels=("a", "b")), repository, breaking=False)
    (path,) = (repository / "m").glob("labels-*.txt")
    path.write_text("c\n")  # what the other version has
    monkeypatch.setattr(transaction, "is_named_by", lambda *_: True)
    with pytest.raises(PublishError, match="which another version uses"):
        publish(stage(b"2", labels=("a", "b")), repository, breaking=False)
    assert (path.read_text(), (repository / "m" / "2").exists()) == ("c\n", False)


def test_directory_that_is_used_for_something_else(stage: Stage, repository: Path) -> None:
    """Nothing is published between its directories; as in ``/etc``, an entry that is a number is not a version."""
    (repository / "ssl" / "certs").mkdir(parents=True)
    (repository / "postgresql" / "15").mkdir(parents=True)
    (repository / "passwd").touch()
    with pytest.raises(PublishError, match="none of them is a model") as caught:
        publish(stage(), repository, breaking=False)
    assert caught.value.code == "publish.not-a-repository"
    assert sorted(path.name for path in repository.iterdir()) == [".repogen.lock", "passwd", "postgresql", "ssl"]


@pytest.mark.parametrize("content", ["README.md", "m/", "lost+found/", "other/config.pbtxt", "other/1/model.plan"])
def test_directory_without_an_owner(stage: Stage, repository: Path, content: str) -> None:
    """Files and empty directories do not matter, and the models of others are kept."""
    path = repository / content
    (path if content.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
    if not content.endswith("/"):
        path.touch()
    assert publish(stage(), repository, breaking=False).version == 1
    assert path.exists()
