"""The private root: its path, its errors, and its removal."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from repogen.errors import PublishError
from repogen.repository import workspace
from repogen.repository.lock import try_lock
from repogen.repository.workspace import preflight, prepare_stage_root, private_directory, private_repository

BUILD = """
import sys, time
from pathlib import Path
from repogen.repository.workspace import prepare_stage_root
with prepare_stage_root(Path(sys.argv[1]), None) as root:
    (root / "work").write_text("x")
    print(root, flush=True)
    time.sleep(600)
"""


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_root_is_next_to_the_repository(tmp_path: Path) -> None:
    """The root is next to the repository, and removed with its parents; other users can read the repository in it."""
    repository = tmp_path / "deep" / "repo"
    with prepare_stage_root(repository, None) as root:
        assert root.parent == tmp_path / "deep" / ".repo.repogen-stage"
        assert private_repository(root).is_dir()
        assert root.stat().st_mode & 0o777 == private_repository(root).stat().st_mode & 0o777 == 0o755
        assert private_directory(root).stat().st_mode & 0o777 == 0o700
        assert not repository.exists()
    assert _names(tmp_path) == []


def test_is_removed_on_interrupt(tmp_path: Path) -> None:
    """Ctrl-C leaves no files."""

    def build() -> None:
        with prepare_stage_root(tmp_path / "repo", None) as root:
            (root / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert _names(tmp_path) == []


def test_two_builds(tmp_path: Path) -> None:
    """Concurrent builds have different roots, and the first to end does not remove the other."""
    with prepare_stage_root(tmp_path / "repo", None) as one:
        with prepare_stage_root(tmp_path / "repo", None) as two:
            assert one != two
            assert one.is_dir()
        assert one.is_dir()
        assert not two.exists()


def test_root_of_a_killed_build_is_removed(tmp_path: Path) -> None:
    """The root of a running build is kept, and removed by the next build after SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", BUILD, str(tmp_path / "repo")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        left = tmp_path / ".repo.repogen-stage" / process.stdout.readline().strip().rpartition("/")[2]
        with prepare_stage_root(tmp_path / "repo", None):
            assert (left / "work").is_file()
        process.send_signal(signal.SIGKILL)
    assert (left / "work").is_file()
    with prepare_stage_root(tmp_path / "repo", None):
        assert not left.exists()
    assert _names(tmp_path) == []


def test_stage_dir(tmp_path: Path) -> None:
    """--stage-dir is used, and kept if it existed before."""
    (tmp_path / "stage").mkdir()
    with prepare_stage_root(tmp_path / "repo", tmp_path / "stage") as root:
        assert root.parent == tmp_path / "stage" / ".repo.repogen-stage"
    assert _names(tmp_path) == ["stage"]


@pytest.mark.parametrize("inside", ["repo", "repo/sub", "repo/sub/.."])
def test_inside_the_repository(tmp_path: Path, inside: str) -> None:
    """Triton would load a staging directory in the repository as a model."""
    with pytest.raises(PublishError, match="inside the model repository") as caught:
        preflight(tmp_path / "repo", tmp_path / inside)
    assert caught.value.code == "stage.inside-repository"


def test_other_filesystem(tmp_path: Path) -> None:
    """Another filesystem is rejected with a hint, and no files remain."""
    with pytest.raises(PublishError, match="are on different filesystems") as caught:
        preflight(tmp_path / "repo", Path("/proc/self"))
    assert caught.value.code == "stage.other-filesystem"
    assert "--stage-dir" in caught.value.hint
    assert _names(tmp_path) == []


def test_repository_is_a_file(tmp_path: Path) -> None:
    """A file where the repository, or a directory above it, should be is rejected."""
    (tmp_path / "file").touch()
    for repository in (tmp_path / "file", tmp_path / "file" / "repo"):
        with pytest.raises(PublishError, match="is not a directory"):
            preflight(repository, tmp_path)


def test_not_writable() -> None:
    """A directory in which no user can create a file is rejected, also for root."""
    with pytest.raises(PublishError, match=r"files can't be created in /proc/\d+$") as caught:
        preflight(Path("/proc/self/repo"), None)
    assert caught.value.code == "stage.not-writable"


def test_nothing_can_be_removed(tmp_path: Path) -> None:
    """If removing fails as well, as on a read-only filesystem, the first error is reported."""
    # a directory whose path leaves no room for a name: to make and to remove a file in it both fail, for root too
    repository = tmp_path
    while room := 4085 - len(str(repository)):
        repository /= "d" * (room - 1 if room <= 200 else 150)
        repository.mkdir()
    with pytest.raises(PublishError, match=r"must be writable .*File name too long") as caught:
        preflight(repository, None)
    assert caught.value.code == "stage.not-writable"


def test_swept_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another build's sweep may remove the file between its creation and its lock: the next one is tried."""
    monkeypatch.setattr(workspace, "try_lock", mock.Mock(wraps=try_lock, side_effect=[None, mock.DEFAULT]))
    preflight(tmp_path / "repo", None)
    assert _names(tmp_path) == []


def test_swept_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that removes each file is named as the reason."""
    monkeypatch.setattr(workspace, "try_lock", lambda _: None)
    with pytest.raises(PublishError, match="keep removing the files") as caught:
        preflight(tmp_path / "repo", None)
    assert caught.value.code == "stage.contended"


def test_linked_repository(tmp_path: Path) -> None:
    """A repository reached by a symlink is staged next to its target."""
    (tmp_path / "real" / "repo").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "repo")
    with prepare_stage_root(tmp_path / "link", None) as root:
        assert root.parent == tmp_path / "real" / ".repo.repogen-stage"
