"""The renames of one publish, each with its way back."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.repository.digest import sha256_bytes
from repogen.repository.filesystem import Filesystem, sync
from repogen.repository.layout import journal_path
from repogen.repository.named_files import DATA_PLACES, named_files_in_place, named_records, place_of
from repogen.repository.ownership import MARK_FILE
from repogen.repository.recovery import Journal, config_bytes

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from repogen.artifacts.versions import StagedVersion
    from repogen.repository.ownership import RepositoryMark


class Change:
    """An edit of the repository: what was done is undone, last first, when the block ends by an exception.

    Every undo is registered before its deed and looks at the disk for whether the deed happened, because an interrupt
    may come between the two.
    """

    def __init__(self, staged: StagedVersion, model: Path, number: int, filesystem: Filesystem) -> None:
        """Take what moves (``staged``), where to (``model``), under which number, and by whom."""
        self._staged = staged
        self._model = model
        self._number = number
        self._filesystem = filesystem
        self._undo = ExitStack()
        self._journal: Path | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Keep the change, or take it back."""
        with self._undo:
            if kind is None:
                if self._journal is not None:
                    self._filesystem.remove(self._journal)
                self._undo.pop_all()

    def move_model(self) -> None:
        """Rename the whole staged model directory in."""
        self._number_staged_version()
        self._move(self._staged.model_dir, self._model)

    def move_version(self) -> None:
        """Rename the staged version directory in."""
        self._move(self._staged.version_dir, self._model / str(self._number))

    def move_config(self) -> None:
        """Rename the staged config.pbtxt over the model's."""
        source, target = self._staged.model_dir / CONFIG_FILE, self._model / CONFIG_FILE
        before = self._staged.model_dir / f"{CONFIG_FILE}.before"
        if target.exists():
            shutil.copy2(target, before)
        self._undo.callback(self._undo_config, source, before, target)
        self._filesystem.rename(source, target)

    def move_named_files(self) -> None:
        """Rename the files in that the staged config names, before any config names them; those that are there stay.

        They are named by their content: one that a kill leaves behind is of no effect, and right for the next publish.
        """
        for record in named_records(self._staged.manifest.files):
            place = place_of(record.path)
            source, target = self._staged.model_dir / place, self._model / place
            if not target.parent.exists():  # Triton takes no notice of it while config.pbtxt names nothing there
                self._undo.callback(_remove_empty, target.parent)
                target.parent.mkdir()
            if not target.exists():
                self._move(source, target)
            elif not named_files_in_place(self._model, [record]):
                self._filesystem.rename(source, target)  # nobody wants a damaged one back

    def replace_version(self) -> None:
        """Swap the staged version directory with what bears its number in the model's directory."""
        self._exchange(self._staged.version_dir, self._model / str(self._number))

    def swap_model(self) -> None:
        """Complete the staged model directory with all else that the published one holds, and swap the two."""
        staged = self._staged.model_dir
        self._number_staged_version()
        for entry in (
            *self._model.iterdir(),
            *(file for place in DATA_PLACES for file in self._model.glob(f"{place}/*")),
        ):
            target = staged / entry.relative_to(self._model)
            if not target.exists():
                _link_tree(entry, target)
        sync(staged)
        self._exchange(staged, self._model)

    def rename_model(self, target: Path) -> None:
        """Rename the model's directory, and with it what was changed in it."""
        self._move(self._model, target)

    def write_journal(self) -> None:
        """Note down the change of config.pbtxt, for ``recovery`` after a kill between two renames."""
        journal = Journal(
            before=sha256_bytes(config_bytes(self._model) or b""), after=sha256_bytes(self._staged.config.text.encode())
        )
        self._journal = journal_path(self._model)
        self._undo.callback(self._filesystem.remove, self._journal)
        self._filesystem.write(self._journal, journal.to_json())

    def write_mark(self, mark: RepositoryMark) -> None:
        """Write the mark of a repository that has none."""
        root = self._model.parent
        self._undo.callback(self._filesystem.remove, root / MARK_FILE)
        write_mark(root, mark, self._filesystem)

    def _number_staged_version(self) -> None:
        target = self._staged.model_dir / str(self._number)
        if target != self._staged.version_dir:
            self._staged.version_dir.rename(target)

    def _move(self, source: Path, target: Path) -> None:
        self._undo.callback(self._undo_move, source, target)
        self._filesystem.rename(source, target)

    def _exchange(self, staged: Path, published: Path) -> None:
        self._undo.callback(self._undo_exchange, staged, published, published.lstat().st_ino)
        self._filesystem.exchange(staged, published)

    def _undo_move(self, source: Path, target: Path) -> None:
        if not source.exists() and target.exists():
            self._filesystem.rename(target, source)

    def _undo_config(self, source: Path, before: Path, target: Path) -> None:
        if source.exists():
            return
        if before.exists():
            self._filesystem.rename(before, target)
        else:
            self._filesystem.remove(target)

    def _undo_exchange(self, staged: Path, published: Path, was: int) -> None:
        if published.lstat().st_ino != was:
            self._filesystem.exchange(staged, published)


def write_mark(repository: Path, mark: RepositoryMark, filesystem: Filesystem) -> None:
    """Write a repository's mark, whole or not at all; the caller holds the lock."""
    fresh = repository / f".{MARK_FILE}.new"
    try:
        filesystem.write(fresh, mark.to_json())
        filesystem.rename(fresh, repository / MARK_FILE)
    except BaseException:
        filesystem.remove(fresh)
        raise


def open_and_sync(directory: Path) -> None:
    """Make a tree readable for everyone, for Triton runs as another user, and durable, leaves first."""
    for parent, _, names in os.walk(directory, topdown=False):
        for path in (*(Path(parent, name) for name in names), Path(parent)):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
                sync(path)


def _link_tree(source: Path, target: Path) -> None:
    """Reproduce a file, link or directory by hard links; a symlink keeps its text, which holds where it will lie."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
    else:
        _link(str(source), str(target))


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another user's file, or a filesystem without hard links
        shutil.copy2(source, target)
        sync(Path(target))
