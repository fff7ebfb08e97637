"""Files that someone else put under names that repogen uses, and files that a killed run left there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from repogen.errors import PublishError
from repogen.repository import workspace
from repogen.repository.filesystem import Disk, make_directory
from repogen.repository.layout import PROBE_PREFIX, journal_path
from repogen.repository.lock import locked, try_lock
from repogen.repository.manifest import read_manifest
from repogen.repository.ownership import RepositoryKind, RepositoryOwner, read_owner
from repogen.repository.recovery import recover
from repogen.repository.transaction import write_owner
from repogen.repository.workspace import preflight, prepare_stage_root, sweep
from tests.support.deep_tree import deep_tree

BUILT = RepositoryOwner(RepositoryKind.BUILT)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return an empty repository."""
    path = tmp_path / "parent" / "repo"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file of the user to which a link could lead."""
    path = tmp_path / "secret"
    path.write_text("keep")
    return path


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_new_owner_is_not_written_through(repository: Path, secret: Path, kind: str) -> None:
    """A link there would overwrite another file, and a FIFO would block."""
    new = repository / ".repogen.json.new"
    if kind == "link":
        new.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(new)
    else:
        new.touch()
    write_owner(repository, BUILT, Disk())
    assert secret.read_text() == "keep"
    assert read_owner(repository) == BUILT
    assert not (repository / "repogen.json").is_symlink()
    assert [path.name for path in repository.iterdir()] == ["repogen.json"]


def test_fifo_in_place_of_a_record(repository: Path) -> None:
    """Each is an error at once, or counts as missing."""
    model = repository / "m"
    (model / "1").mkdir(parents=True)
    for path in (
        repository / "repogen.json",
        model / "1" / "manifest.json",
        journal_path(model),
        model / "config.pbtxt",
    ):
        os.mkfifo(path)
    with pytest.raises(PublishError, match="not a regular file"):
        read_owner(repository)
    with pytest.raises(OSError, match="not a regular file"):
        read_manifest(model / "1")
    with pytest.raises(PublishError, match="not a regular file"):
        recover(repository, "m")


def test_lock_that_is_a_link(repository: Path, secret: Path) -> None:
    """It is not opened."""
    (repository / ".repogen.lock").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"), locked(repository, 1):
        pass
    assert secret.read_text() == "keep"


def test_other_users_cannot_hold_the_lock(repository: Path) -> None:
    """Whoever can open its file can lock it, also only for reading; that of an earlier version is closed to them."""
    lock = repository / ".repogen.lock"
    for _ in range(2):
        with locked(repository, 1):
            assert lock.stat().st_mode & 0o777 == 0o600
        lock.chmod(0o644)


def test_mode_of_another_file_is_kept(repository: Path, secret: Path) -> None:
    """It is not a lock of repogen: that is empty."""
    secret.chmod(0o644)
    secret.rename(repository / ".repogen.lock")
    with locked(repository, 1):
        pass
    assert (repository / ".repogen.lock").stat().st_mode & 0o777 == 0o644


def test_container_that_is_a_link(repository: Path, tmp_path: Path) -> None:
    """Whoever planted it could exchange the files between test and publish."""
    (tmp_path / "elsewhere").mkdir()
    (repository.parent / ".repo.repogen-stage").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PublishError, match="is a symlink") as caught, prepare_stage_root(repository, None):
        pass
    assert caught.value.code == "stage.foreign"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_container_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of a directory can rename what is in it."""
    (repository.parent / ".repo.repogen-stage").mkdir()
    lstat = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        status = lstat(path)
        return os.stat_result((*status[:4], 4711, *status[5:])) if path.name.endswith("stage") else status

    monkeypatch.setattr(Path, "lstat", of_another)
    with pytest.raises(PublishError, match="belongs to another user") as caught, prepare_stage_root(repository, None):
        pass
    assert caught.value.code == "stage.foreign"


def test_link_in_the_container_is_not_followed(repository: Path, tmp_path: Path) -> None:
    """Neither a lock is created in its target, nor is the target removed."""
    (tmp_path / "elsewhere").mkdir()
    container = repository.parent / ".repo.repogen-stage"
    container.mkdir()
    (container / "build-x").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(container / "build-y")
    (container / "build-z").mkdir()
    (container / "build-z" / "build.lock").symlink_to(tmp_path / "elsewhere" / "lock")
    with prepare_stage_root(repository, None):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_leftovers_of_a_killed_run_are_removed(repository: Path) -> None:
    """Staging directories, probes and a new owner; those that another process uses are kept."""
    container = repository.parent / ".repo.repogen-stage"
    for name in ("build-killed", "build-live"):
        (container / name / "repository" / "m").mkdir(parents=True)
        (container / name / "build.lock").touch()
    (container / "build-without-lock").mkdir()
    for directory in (repository, repository.parent):
        (directory / f"{PROBE_PREFIX}killed").touch()
        (directory / f"{PROBE_PREFIX}live").touch()
    (repository / ".repogen.json.new").touch()
    live = [
        container / "build-live" / "build.lock", repository / f"{PROBE_PREFIX}live",
        repository.parent / f"{PROBE_PREFIX}live", repository / ".repogen.lock",
    ]  # fmt: skip
    locks = [try_lock(path) for path in live]
    sweep(repository, None)
    assert [path.name for path in container.iterdir()] == ["build-live"]
    assert sorted(path.name for path in repository.iterdir()) == [
        ".repogen-probe-live", ".repogen.json.new", ".repogen.lock",
    ]  # fmt: skip
    for lock in locks:
        assert lock is not None
        lock.release()
    sweep(repository, None)
    assert [path.name for path in repository.iterdir()] == [".repogen.lock"]
    assert [path.name for path in repository.parent.iterdir()] == ["repo"]


def test_directory_that_was_renamed_to_the_stage_is_kept(repository: Path) -> None:
    """Who may rename entries of the parent directory may give any directory of this user the name of the stage."""
    output = repository.parent / ".repo.repogen-stage" / "build-output"
    output.mkdir(parents=True)
    (output / "thesis.pdf").touch()
    sweep(repository, None)
    assert (output / "thesis.pdf").exists()


def test_new_directory_that_is_replaced_by_a_link(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its target does not become readable for all users."""
    private, mkdir = tmp_path / "private", os.mkdir
    private.mkdir(mode=0o700)

    def replaced(path: str | Path, mode: int = 0o777) -> None:
        mkdir(path, mode)
        Path(path).rename(f"{path}-moved")
        Path(path).symlink_to(private)

    monkeypatch.setattr(os, "mkdir", replaced)
    with pytest.raises(OSError, match=r"Not a directory|symbolic link"):
        make_directory(repository / "new")
    assert private.stat().st_mode & 0o777 == 0o700


def test_preflight_leaves_no_file(repository: Path) -> None:
    """The name of its file cannot be guessed, and a sweep at the same time does not remove it."""
    preflight(repository, None)
    assert list(repository.iterdir()) == []
    assert [path.name for path in repository.parent.iterdir()] == ["repo"]


@pytest.mark.parametrize("failing", ["repository", "build-", ".repo.repogen-stage"])
def test_full_disk(repository: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Each directory of the stage can be the first that does not fit; nothing is left."""
    mkdir = os.mkdir

    def full(path: str | Path, mode: int = 0o777) -> None:
        if Path(path).name.startswith(failing):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(PublishError, match="No space left on device"), prepare_stage_root(repository, None):
        pass
    assert [path.name for path in repository.parent.iterdir()] == ["repo"]


@pytest.mark.parametrize("kind", ["loop", "below-loop", "long"])
def test_repository_that_cannot_exist(tmp_path: Path, kind: str) -> None:
    """A loop of links and a long name are errors of the path."""
    (tmp_path / "loop").symlink_to("loop")
    path = {"loop": tmp_path / "loop", "below-loop": tmp_path / "loop" / "r", "long": tmp_path / ("r" * 300)}[kind]
    with pytest.raises(PublishError, match=r"symbolic links|name too long") as caught:
        preflight(path, None)
    assert caught.value.code == "stage.no-directory"


def test_proc_as_a_repository() -> None:
    """The message says that it can't store files, and not where to stage."""
    with pytest.raises(
        PublishError, match=r"^/proc can't be a model repository: files can't be created in it$"
    ) as caught:
        preflight(Path("/proc"), None)
    assert (caught.value.code, "--stage-dir" in caught.value.hint) == ("stage.not-writable", False)
    sweep(Path("/proc"), None)


def test_write_error_names_the_file() -> None:
    """Errors without a file, such as those of shutil, have their text."""
    error = workspace.write_error("m", Path("stage"), OSError(errno.ENOSPC, "No space left on device", "stage/x"))
    assert error.message == "m: cannot be staged in stage: No space left on device (stage/x)"
    for other in (OSError("special"), OSError(errno.ENOSPC, "special")):
        assert workspace.write_error("m", Path("stage"), other).message.endswith("stage: special")


def test_container_of_another_user_is_not_swept(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could exchange it for a link while directories in it are removed."""
    container = repository.parent / ".repo.repogen-stage"
    (container / "build-theirs").mkdir(parents=True)
    lstat = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        status = lstat(path)
        return os.stat_result((*status[:4], 4711, *status[5:])) if path == container else status

    monkeypatch.setattr(Path, "lstat", of_another)
    sweep(repository, None)
    assert [path.name for path in container.iterdir()] == ["build-theirs"]


def test_leftover_that_is_nested_too_deeply_for_recursion(repository: Path) -> None:
    """It is removed; before, no command could publish into the repository."""
    container = repository.parent / ".repo.repogen-stage"
    (container / "build-killed").mkdir(parents=True)
    (container / "build-killed" / "build.lock").touch()
    with deep_tree(container / "build-killed"):
        sweep(repository, None)
        assert not container.exists()
