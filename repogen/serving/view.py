"""The part of a repository that a server without explicit loads may see: the models that it may load.

Triton loads every model of the directory that it is started on. So it is started on a view: a private directory with a
copy of each admitted model's config, and links to the other files of its directory.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MAX_CONFIG_BYTES
from repogen.artifacts.serving import ControlMode
from repogen.errors import RepogenError
from repogen.files import read_bytes
from repogen.repository.layout import models_of
from repogen.serving.admission import read_refusals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from repogen.artifacts.progress import Progress

_POLL_SECONDS = 0.5


class View:
    """A view of a repository.

    Args:
        repository: The repository.
        run_dir: Private directory of the server, in which ``models`` is the view.
        seen_as: Path of the repository on the server.
        progress: Receives a note about each model that is not in the view.
    """

    def __init__(self, repository: Path, run_dir: Path, seen_as: Path, progress: Progress) -> None:
        """Create the view."""
        self.root = run_dir / "models"
        self._staging = run_dir / "staging"
        self._repository = repository
        self._seen_as = seen_as
        self._progress = progress
        self._refused: dict[str, tuple[str, ...]] = {}
        self.root.mkdir()
        self.update()

    def update(self) -> None:
        """Add and remove models, versions and files, and replace configs that changed."""
        names = set(models_of(self._repository))
        refused = {name: reasons for name in names if (reasons := refusal_reasons(self._repository / name))}
        for name in sorted(refused):
            if self._refused.get(name) != refused[name]:
                self._progress.note(name, f"not loaded: {'; '.join(refused[name])}")
        self._refused = refused
        for name in names - set(refused):
            self._update_model(name)
        for path in self.root.iterdir():
            if path.name not in names or path.name in refused:
                shutil.rmtree(path)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow changes of the repository while the block runs."""
        stop = threading.Event()

        def follow() -> None:
            while not stop.wait(_POLL_SECONDS):
                try:
                    self.update()
                except (OSError, RepogenError) as error:  # a file may vanish while it is read; tried again
                    self._progress.note("", f"the repository could not be read: {error}")

        thread = threading.Thread(target=follow, name="view")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _update_model(self, name: str) -> None:
        """Make one model of the view equal to the repository's; a new model appears at once."""
        source, view = self._repository / name, self.root / name
        directory = view if view.is_dir() else self._staging / name
        if directory is not view:
            shutil.rmtree(self._staging, ignore_errors=True)
            directory.mkdir(parents=True)
        entries = {entry.name for entry in source.iterdir()} - {CONFIG_FILE}
        for entry in entries:
            if not (directory / entry).is_symlink():
                (directory / entry).symlink_to(self._seen_as / name / entry)
        self._copy_config(source / CONFIG_FILE, directory / CONFIG_FILE)
        for path in directory.iterdir():
            if path.name != CONFIG_FILE and path.name not in entries:
                path.unlink()
        if directory is not view:
            directory.rename(view)

    def _copy_config(self, source: Path, target: Path) -> None:
        if not source.is_file():
            target.unlink(missing_ok=True)
            return
        content = read_bytes(source, MAX_CONFIG_BYTES)
        if not target.exists() or target.read_bytes() != content:
            copy = self.root.with_name(CONFIG_FILE)
            copy.write_bytes(content)
            copy.replace(target)


def following(view: View | None, mode: ControlMode) -> AbstractContextManager[None]:
    """Follow changes of the repository of a server in mode ``poll`` while the block runs."""
    return view.following() if view is not None and mode is ControlMode.POLL else nullcontext()


def refusal_reasons(model: Path) -> tuple[str, ...]:
    """Return why a model is not in a view; empty if it is."""
    try:
        return read_refusals(model)
    except RepogenError as error:
        return (error.message,)
    except (OSError, UnicodeDecodeError) as error:
        return (f"{CONFIG_FILE} cannot be read: {error}",)
