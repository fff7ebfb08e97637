"""The renames of one publish, each with its undo operation."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, OWNER_FILE
from repogen.artifacts.named_file import DATA_DIRECTORIES, is_named_by, named_records, path_in_model
from repogen.errors import PublishError
from repogen.files import reason
from repogen.repository.digest import sha256_bytes, sha256_file
from repogen.repository.filesystem import Filesystem, make_directory, opened_directory, sync
from repogen.repository.layout import config_bytes, journal_path
from repogen.repository.manifest import damaged_named_files
from repogen.repository.ownership import NEW_OWNER_FILE
from repogen.repository.recovery import Journal

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from repogen.artifacts.versions import StagedVersion
    from repogen.repository.ownership import RepositoryOwner


class Transaction:
    """A change of the repository, which is undone in reverse order if the block raises an exception.

    Every undo operation is registered before its operation, and checks the disk for whether the operation happened,
    because an interrupt may occur between the two.
    """

    def __init__(self, staged: StagedVersion, model: Path, number: int, filesystem: Filesystem) -> None:
        """Move ``staged`` to ``model`` as version ``number`` by means of ``filesystem``."""
        self._staged = staged
        self._model = model
        self._number = number
        self._filesystem = filesystem
        self._directory = model
        self._opened = ExitStack()
        self._undo = ExitStack()
        self._journal: Path | None = None

    def __enter__(self) -> Self:
        """Begin the transaction.

        Raises:
            OSError: A symlink has replaced the model's directory.
        """
        if os.path.lexists(self._model):  # a link that replaces it from now on is not followed
            self._directory = self._opened.enter_context(opened_directory(self._model))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Commit the change, or undo it.

        Raises:
            PublishError: It could not be undone, so the repository may have the new version.
        """
        with self._opened:
            if kind is not None:
                self._undo_all()
                return
            try:
                if self._journal is not None:
                    self._filesystem.remove(self._journal)
                self._undo.pop_all()
            except BaseException:
                self._undo_all()
                raise

    def move_model(self) -> None:
        """Rename the whole staged model directory in."""
        self._number_staged_version()
        self._move(self._staged.model_dir, self._model)

    def move_version(self) -> None:
        """Rename the staged version directory in."""
        self._move(self._staged.version_dir, self._directory / str(self._number))

    def move_config(self) -> None:
        """Rename the staged config.pbtxt over the model's."""
        source, target = self._staged.model_dir / CONFIG_FILE, self._directory / CONFIG_FILE
        before = self._staged.model_dir / f"{CONFIG_FILE}.before"
        if target.exists():
            shutil.copy2(target, before)
        self._undo.callback(self._undo_config, source, before, target)
        self._filesystem.rename(source, target)

    def move_named_files(self) -> None:
        """Rename the files that the staged config names into the model, except for those that are intact there.

        They are moved before any config names them. They are named by their content: one that remains after a kill has
        no effect, and is correct for the next publish.

        Raises:
            PublishError: The model has a file of the same name whose content has the same first digits of the sha256.
        """
        for record in named_records(self._staged.manifest.files):
            name = path_in_model(record.path)
            source, target = self._staged.model_dir / name, self._directory / name
            if not target.parent.exists():  # Triton ignores it while config.pbtxt does not name a file in it
                self._undo.callback(_remove_empty, target.parent)
                make_directory(target.parent)
            if not target.exists():
                self._move(source, target)
            elif damaged_named_files(self._directory, [record]):
                _require_damaged(target)
                self._filesystem.rename(source, target)  # no undo: the file that it replaces is damaged

    def replace_version(self) -> None:
        """Swap the staged version directory with the one of the same number in the model's directory."""
        self._exchange(self._staged.version_dir, self._directory / str(self._number))

    def swap_model(self) -> None:
        """Complete the staged model directory with the other files of the published one, and swap the two."""
        staged = self._staged.model_dir
        self._number_staged_version()
        for entry in (
            *self._directory.iterdir(),
            *(file for directory in DATA_DIRECTORIES for file in self._directory.glob(f"{directory}/*")),
        ):
            target = staged / entry.relative_to(self._directory)
            if not target.exists():
                _link_tree(entry, target)
        sync(staged)
        self._exchange(staged, self._model)

    def rename_model(self, target: Path) -> None:
        """Rename the model's directory, with the changes in it."""
        self._move(self._model, target)

    def write_journal(self) -> None:
        """Record the change of config.pbtxt, for ``recovery`` after a kill between two renames."""
        journal = Journal(
            before=sha256_bytes(config_bytes(self._model) or b""), after=sha256_bytes(self._staged.config.text.encode())
        )
        self._journal = journal_path(self._model)
        self._undo.callback(self._filesystem.remove, self._journal)
        self._filesystem.write(self._journal, journal.to_json())

    def write_owner(self, owner: RepositoryOwner) -> None:
        """Write the owner of a repository that has none."""
        root = self._model.parent
        self._undo.callback(self._filesystem.remove, root / OWNER_FILE)
        write_owner(root, owner, self._filesystem)

    def _undo_all(self) -> None:
        try:
            self._undo.close()
        except OSError as failure:
            raise PublishError(
                f"{self._model}: a change failed, and could not be undone: {reason(failure)}",
                "the repository may have the new version: check the disk, run `repogen verify`, and try again",
                code="publish.undo",
            ) from failure

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

    def _undo_exchange(self, staged: Path, published: Path, inode: int) -> None:
        if published.lstat().st_ino != inode:
            self._filesystem.exchange(staged, published)


def write_owner(repository: Path, owner: RepositoryOwner, filesystem: Filesystem) -> None:
    """Write ``repogen.json`` atomically; the caller holds the lock."""
    temporary = repository / NEW_OWNER_FILE
    try:
        filesystem.write(temporary, owner.to_json())
        filesystem.rename(temporary, repository / OWNER_FILE)
    except BaseException:
        filesystem.remove(temporary)
        raise


def _require_damaged(path: Path) -> None:
    """Require that a named file is damaged: another version uses one that is intact.

    Raises:
        PublishError: It is intact.
    """
    with suppress(OSError):  # it cannot be read
        if is_named_by(path.name, sha256_file(path)):
            raise PublishError(
                f"{path}, which another version uses, differs from the version's file of the same name",
                "publish another version, or build the model again",
                code="publish.altered-source",
            )


def _link_tree(source: Path, target: Path) -> None:
    """Reproduce a file, link or directory by hard links; a symlink is copied as it is, and is valid after the swap."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        try:
            shutil.copytree(source, target, symlinks=True, copy_function=_link)
        except RecursionError as error:
            raise OSError(errno.ELOOP, "it is nested too deeply", str(source)) from error
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
