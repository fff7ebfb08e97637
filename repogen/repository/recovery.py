"""Finish, or take back, what a kill cut in two; and tell such a state from a config.pbtxt that a person edited.

A publish that needs two renames first writes a journal, ``<repository>/.repogen.<model>.pending.json``, and removes it
after the second (Triton ignores files in a repository's root). Only a journal licenses a repair: with the version in
place the publish is finished, without it the config is put back. Without a journal, a config.pbtxt that is not its
newest version's is somebody's edit, and is theirs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.errors import PublishError
from repogen.repository.decode import MalformedRecordError, parse_object
from repogen.repository.digest import sha256_bytes
from repogen.repository.filesystem import Disk, Filesystem
from repogen.repository.layout import journal_path, latest_version, model_dir
from repogen.repository.lock import locked

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Journal:
    """What a publish in two renames is about to do.

    Attributes:
        before: sha256 of the model's config.pbtxt before.
        after: The same, after.
    """

    before: str
    after: str

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"


def recover(repository: Path, name: str, *, lock_seconds: float = 60.0) -> bool:
    """Complete or undo a publish of model ``name`` that was killed between its two renames.

    Call it before deciding that a build is unchanged. It waits for a publish that is running, and does nothing to a
    repository that is in order.

    Args:
        repository: The model repository, which need not exist.
        name: Model name.
        lock_seconds: How long to wait for another publish.

    Returns:
        Whether config.pbtxt now is the one kept with the newest version; False also when there is no version.

    Raises:
        PublishError: The lock was not to be had, or the repository cannot be written.
    """
    model = model_dir(repository, name)
    if not journal_path(model).exists():
        return in_order(model)
    try:
        with locked(repository, lock_seconds):
            settle(model, Disk())
            return in_order(model)
    except OSError as error:
        raise PublishError(
            f"{name}: an interrupted publish cannot be completed: {error.strerror} ({error.filename})",
            "Make the repository writable and build again.",
            code="publish.recover",
        ) from error


def in_order(model: Path) -> bool:
    """Return whether the model's config.pbtxt is the one kept with its newest version."""
    latest = latest_version(model)
    config = config_bytes(model)
    return latest is not None and config is not None and config == config_bytes(model / str(latest))


def settle(model: Path, filesystem: Filesystem) -> None:
    """Repair a half-done publish that the journal tells of; the caller holds the lock."""
    path = journal_path(model)
    journal = _read(path)
    if journal is None:
        return
    latest, config = latest_version(model), config_bytes(model)
    kept = None if latest is None else config_bytes(model / str(latest))
    # what is neither the config before nor the one after was edited by a person since
    ours = config is not None and sha256_bytes(config) in {journal.before, journal.after}
    if ours and kept is not None and config != kept:
        fresh = path.with_suffix(".pbtxt")
        filesystem.write(fresh, kept.decode())
        filesystem.rename(fresh, model / CONFIG_FILE)
    filesystem.remove(path)


def config_bytes(directory: Path) -> bytes | None:
    """Return the config.pbtxt in a directory, None when there is none."""
    path = directory / CONFIG_FILE
    return path.read_bytes() if path.is_file() else None


def _read(path: Path) -> Journal | None:
    """Return the journal; a torn one was cut before the first rename and tells of nothing."""
    try:
        document = parse_object(path.read_text(encoding="utf-8", errors="replace"), path.name)
        return Journal(document.text("before"), document.text("after"))
    except FileNotFoundError:
        return None
    except MalformedRecordError:
        return Journal("", "")
