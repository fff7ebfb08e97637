"""Completes or undoes a publish that was interrupted between two renames.

A publish that needs two renames first writes a journal, ``<repository>/.repogen.<model>.pending.json``, and removes it
after the second (Triton ignores files in a repository's root). Only a journal permits a repair: if the version is in
place, the publish is completed, otherwise the config is restored. Without a journal, a config.pbtxt that differs from
the newest version's was edited by a user, and is not changed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.errors import PublishError
from repogen.files import exists, is_foreign_in_public, reason
from repogen.repository.decode import MalformedRecordError, malformed, read_record
from repogen.repository.digest import sha256_bytes
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.layout import config_bytes, journal_path, latest_version, model_dir
from repogen.repository.lock import locked

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Journal:
    """The change of config.pbtxt that a publish is about to make.

    Attributes:
        before: sha256 of the model's config.pbtxt before.
        after: sha256 of the model's config.pbtxt after.
    """

    before: str
    after: str

    def to_json(self) -> str:
        """Return the contents of the journal's file."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"


_JOURNAL = TypeAdapter(Journal)


def recover(repository: Path, name: str, *, lock_seconds: float = 60.0) -> bool:
    """Complete or undo a publish of model ``name`` that was interrupted between its two renames.

    Call it before deciding whether a build is up to date. It waits for a publish that is running, and does not change
    a repository without a journal.

    Args:
        repository: The model repository, which need not exist.
        name: Model name.
        lock_seconds: How long to wait for another publish.

    Returns:
        Whether config.pbtxt now equals the copy in the newest version; False if there is no version.

    Raises:
        PublishError: The lock could not be acquired, or the repository cannot be written.
    """
    model = model_dir(repository, name)
    if not exists(journal_path(model)):
        return config_is_newest(model)
    try:
        with locked(repository, lock_seconds):
            finish_interrupted_publish(model, Disk())
            return config_is_newest(model)
    except OSError as error:
        raise PublishError(
            f"{name}: an interrupted publish cannot be completed: {reason(error)}",
            "make the repository writable and build again",
            code="publish.recover",
        ) from error


def config_is_newest(model: Path) -> bool:
    """Return whether the model's config.pbtxt equals the copy in its newest version."""
    latest = latest_version(model)
    config = config_bytes(model)
    return latest is not None and config is not None and config == config_bytes(model / str(latest))


def finish_interrupted_publish(model: Path, filesystem: Filesystem) -> None:
    """Complete or undo the publish that the model's journal describes; the caller holds the lock.

    Raises:
        MalformedRecordError: A config.pbtxt is too large, or the newest version's is not UTF-8.
        OSError: A file can't be read or written.
    """
    path = journal_path(model)
    journal = _read_journal(path)
    if journal is None:
        return
    latest, config = latest_version(model), config_bytes(model)
    newest_config = None if latest is None else config_bytes(model / str(latest))
    # a config that is neither the one before nor the one after was edited by a user since
    unedited = config is not None and sha256_bytes(config) in {journal.before, journal.after}
    if unedited and newest_config is not None and config != newest_config:
        copy = path.with_suffix(".pbtxt")
        try:
            filesystem.write(copy, newest_config.decode())
        except UnicodeDecodeError as error:
            raise malformed(f"{model.name}/{latest}/{CONFIG_FILE}", "is not UTF-8") from error
        filesystem.rename(copy, model / CONFIG_FILE)
    filesystem.remove(path)


def _read_journal(path: Path) -> Journal | None:
    """Return the journal, None if there is none; an incomplete one was interrupted before the first rename.

    Raises:
        PublishError: Another user created it in a directory such as ``/tmp``.
        OSError: It can't be read.
    """
    if is_foreign_in_public(path, path.parent):
        raise PublishError(
            f"{path} belongs to another user, who could change the model's config.pbtxt with it",
            "remove it, or use a repository in which only trusted users can create files",
            code="publish.foreign-model",
        )
    try:
        return read_record(_JOURNAL, path, path.name)
    except FileNotFoundError:
        return None
    except MalformedRecordError:
        return Journal("", "")
