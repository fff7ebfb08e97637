"""The view of a repository that a server without explicit loads is started on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.serving.view import View

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = 'backend: "onnxruntime"\n'
HOSTILE = CONFIG + 'parameters { key: "EXECUTION_ENV_PATH" }\n'


class Notes(Silent):
    """A Progress that stores the notes."""

    def __init__(self) -> None:
        """Start without notes."""
        self.notes: list[str] = []

    def note(self, model: str, text: str) -> None:
        """Store the note."""
        self.notes.append(f"{model}: {text}")


def write(repository: Path, name: str, config: str = CONFIG) -> Path:
    """Write a model with version 1; return its directory."""
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    (repository / name / "1" / "model.onnx").touch()
    (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    return repository / name


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with the model m."""
    write(tmp_path / "repository", "m")
    return tmp_path / "repository"


def view_of(repository: Path, progress: Notes | None = None) -> View:
    """Return a view in a new directory."""
    run_dir = repository.parent / "run"
    run_dir.mkdir()
    return View(repository, run_dir, repository, progress or Notes())


def content(view: View) -> dict[str, list[str]]:
    """Return the names of the entries of each model in the view."""
    return {model.name: sorted(entry.name for entry in model.iterdir()) for model in sorted(view.root.iterdir())}


def test_view_has_a_copy_of_each_config_and_links(repository: Path) -> None:
    """A config that changes later is not seen before it is checked; files are not copied."""
    view = view_of(repository)
    assert content(view) == {"m": ["1", "config.pbtxt"]}
    assert (view.root / "m" / "1").readlink() == repository / "m" / "1"
    assert not (view.root / "m" / "config.pbtxt").is_symlink()
    write(repository, "m", HOSTILE)
    assert (view.root / "m" / "config.pbtxt").read_text(encoding="utf-8") == CONFIG


def test_links_lead_to_where_the_server_sees_the_repository(repository: Path, tmp_path: Path) -> None:
    """In a container the repository has another path."""
    view = View(repository, tmp_path, tmp_path / "mounted", Silent())
    assert (view.root / "m" / "1").readlink() == tmp_path / "mounted" / "m" / "1"


def test_changes_are_followed(repository: Path) -> None:
    """New and removed models, versions and files."""
    view = view_of(repository)
    write(repository, "n")
    (repository / "m" / "2").mkdir()
    (repository / "m" / "labels.txt").touch()
    view.update()
    assert content(view) == {"m": ["1", "2", "config.pbtxt", "labels.txt"], "n": ["1", "config.pbtxt"]}
    (repository / "m" / "2").rmdir()
    (repository / "m" / "config.pbtxt").unlink()
    (repository / "n").rename(repository.parent / "n")
    view.update()
    assert content(view) == {"m": ["1", "labels.txt"]}
    write(repository, "m", CONFIG + "max_batch_size: 8\n")
    view.update()
    assert (view.root / "m" / "config.pbtxt").read_text(encoding="utf-8") == CONFIG + "max_batch_size: 8\n"


def test_refused_model_is_noted_once_and_returns_when_it_is_fixed(repository: Path) -> None:
    """A model that may no longer be loaded disappears from the view."""
    progress = Notes()
    view = view_of(repository, progress)
    write(repository, "m", HOSTILE)
    write(repository, "x$(date)y")
    write(repository, "n", "no config")
    for _ in range(2):
        view.update()
    assert content(view) == {}
    assert [note.partition(": not loaded: ")[0] for note in progress.notes] == ["m", "n", "x$(date)y"]
    write(repository, "m")
    view.update()
    assert content(view) == {"m": ["1", "config.pbtxt"]}
