"""Deploys of one machine to one server wait for each other."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.build.cache import user_cache
from repogen.deploy.lock import server_lock
from repogen.errors import SmokeError, SpecError
from repogen.files import cache_directory
from repogen.serving.interpreter import _version_manager_folders

if TYPE_CHECKING:
    from pathlib import Path


class Notes(Silent):
    """Receives progress events, and keeps the notes."""

    def __init__(self) -> None:
        """Begin without notes."""
        self.notes: list[str] = []

    def note(self, model: str, text: str) -> None:
        """Keep a note."""
        self.notes.append(f"{model}{text}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache directory of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_second_deploy_waits() -> None:
    """It says so, and ends with an error if the first one takes too long; another server has another lock."""
    events = Notes()
    with server_lock("a:8001", None, events), server_lock("b:8001", None, events):
        assert events.notes == []
        with pytest.raises(SmokeError) as caught, server_lock("a:8001", 0.1, events):
            pass
        assert caught.value.code == "deploy.locked"
        assert events.notes == ["waiting: another deploy to a:8001 is in progress"]
    with server_lock("a:8001", 0.1, events):
        pass


def test_deploy_without_a_cache_directory(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is not required, because changes of other deploys are detected as well."""
    (cache / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    with server_lock("a:8001", None, Silent()):
        pass


def test_deploy_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with an arbitrary user ID."""
    without_home(monkeypatch)
    with server_lock("a:8001", None, Silent()):
        pass


def test_caches_without_a_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of models is off; the error of the embedded server says which variable to set."""
    without_home(monkeypatch)
    assert user_cache({}) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~" / ".pyenv" / "versions" / "3.11.7" / "bin").mkdir(parents=True)
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert list(_version_manager_folders()) == []
    with pytest.raises(SpecError, match="HOME") as caught:
        cache_directory(None)
    assert (caught.value.code, caught.value.exit_code) == ("home-directory", 2)


def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the home directory of this process's user."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", dict[int, str]().__getitem__)
