"""Reads what a repository contains: models, versions, and which of them Triton serves. Read-only.

Works on any repository: a version that repogen did not build, or that is damaged, has a record with the reason.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE, SIGNATURE_FILE, UNCONFIRMED_FILE
from repogen.artifacts.inventory import ModelRecord, VersionRecord
from repogen.errors import RepogenError, SpecError
from repogen.files import exists, is_directory, raise_if_exhausted, reason
from repogen.files.paths import FOREIGN_LINK, foreign_link_error, foreign_link_in
from repogen.files.resolve import resolved
from repogen.files.tree import walk
from repogen.files.url import is_url, location
from repogen.files.work_limit import COMMAND_SECONDS, work_limit
from repogen.repository.hold import held_version
from repogen.repository.layout import (
    config_bytes,
    directory_of_step,
    is_model,
    model_dir,
    models_of,
    triton_versions,
    versions,
)
from repogen.repository.manifest import read_manifest
from repogen.repository.version_policy import served_versions
from repogen.spec.problems import suggestion
from repogen.triton_config.text.parse import decode_config, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from repogen.artifacts.versions import Manifest

_MAX_ENTRIES = 10_000
"""Number of directory entries after which the size of a directory without a manifest is no longer added up."""


def require_models(repository: Path, names: Collection[str]) -> None:
    """Require a repository that exists and has models ``names``.

    Raises:
        SpecError: The repository, or a model, does not exist, or is behind a link of another user.
        PublishError: The repository can't be read.
    """
    if not is_directory(repository):
        if is_url(repository):
            raise SpecError(
                f"{location(repository)} is in a store, and this command works with local directories only",
                "copy the repository to a directory with the tools of the store",
                code="repository.missing",
            )
        raise SpecError(
            f"{repository} is not a directory",
            "pass the path of your repository, which is `repository:` in the spec, or build one with `repogen build`",
            code="repository.missing",
        )
    existing = models_of(repository)
    if existing and all(name.isdecimal() for name in existing) and is_model(repository):
        raise SpecError(
            f"{repository} is the directory of a model, not a repository",
            f"pass the repository, {repository.absolute().parent}",
            code="repository.missing",
        )
    missing_models = [name for name in names if name not in existing]
    if missing_models:
        raise SpecError(
            f"{repository} has no model {', '.join(missing_models)}",
            suggestion(missing_models, existing, f"models of the repository: {', '.join(existing) or 'none'}"),
            code="repository.no-such-model",
        )
    for name in names:
        if link := foreign_link_in(repository / name):
            raise foreign_link_error(link)


def directories_of(repository: Path, names: Collection[str] = ()) -> list[Path]:
    """Return the directories in which the files of a repository are, without symlinks; see ``only_files_in``.

    They are the repository, and the models and versions that are links to other places.

    Args:
        repository: The repository.
        names: Models; all if empty.

    Raises:
        SpecError: A symlink of another user, who does not own what it leads to, is on the way to one of them.
        PublishError: A directory can't be read.
    """
    models = [repository / name for name in names or models_of(repository)]
    entries = [model / str(number) for model in models for number in versions(model)]
    return [resolved(repository), *(resolved(path) for path in (*models, *entries) if path.is_symlink())]


def require_any_model(repository: Path) -> None:
    """Require a repository with at least one model.

    Raises:
        SpecError: It has none.
        PublishError: The repository can't be read.
    """
    if not models_of(repository):
        raise SpecError(f"{repository} has no models", "build some with `repogen build`", code="repository.empty")


def read_models(repository: Path, names: Iterable[str] = ()) -> tuple[ModelRecord, ...]:
    """Return the models of a repository; those in ``names`` if there are any.

    Raises:
        SpecError: The repository, or a model, does not exist.
        PublishError: A directory can't be read.
        WorkLimitError: A model, or all models together, need too much time or memory.
    """
    selection = tuple(names)
    with work_limit(str(repository), COMMAND_SECONDS):
        require_models(repository, selection)
        return tuple(read_model(repository, name) for name in selection or models_of(repository))


def read_model(repository: Path, name: str) -> ModelRecord:
    """Return one model of a repository; without versions if another user's link may lead to private files.

    Raises:
        PublishError: Its directory can't be read.
        WorkLimitError: It needs too much time or memory.
    """
    # a hidden directory is a model for Triton, although repogen publishes none under such a name
    directory = directory_of_step(repository, name) or model_dir(repository, name)
    with work_limit(f"model {name}"):
        return _read_model(name, directory)


def _read_model(name: str, directory: Path) -> ModelRecord:
    if link := foreign_link_in(directory):
        return ModelRecord(name, directory, (), (), None, f"{link} {FOREIGN_LINK}")
    numbers = triton_versions(directory)
    served, held, problem = _served(directory, numbers)
    records = tuple(
        record
        for number in reversed(versions(directory))
        if (record := _version(directory, number, number in served)).manifest is not None or is_directory(record.path)
    )  # without a version that a prune deletes at the same time
    if lost := sorted(set(served) - {record.version for record in records}):
        problem = f"Triton serves version {', '.join(map(str, lost))}, whose directory does not exist"
    elif not served and not problem:
        problem = "its version policy serves none of its versions" if records else "it has no version"
    return ModelRecord(name, directory, records, served, held, problem)


def _served(directory: Path, numbers: list[int]) -> tuple[tuple[int, ...], int | None, str]:
    """Return the versions that a model serves, the one that is held, and why that is not known."""
    try:
        config = config_bytes(directory)
        parsed = None if config is None else parse(decode_config(config), f"{directory.name}/{CONFIG_FILE}")
    except UnicodeDecodeError:
        return (), None, f"{CONFIG_FILE} is not UTF-8"
    except RepogenError as error:
        return (), None, error.message
    except OSError as error:
        raise_if_exhausted(error)
        return (), None, f"{CONFIG_FILE} cannot be read: {error.strerror}"
    return served_versions(parsed, numbers), held_version(config), ""


def _version(directory: Path, number: int, served: bool) -> VersionRecord:  # noqa: FBT001 - a column of the record
    path = directory / str(number)
    manifest, problem = _manifest(path)
    return VersionRecord(
        directory.name,
        number,
        path,
        served,
        manifest,
        problem,
        _size_on_disk(path) if manifest is None else manifest.size,
        _changed_at(path if manifest is None else path / MANIFEST_FILE),
        not exists(path / UNCONFIRMED_FILE),
        exists(path / SIGNATURE_FILE),
    )


def _manifest(path: Path) -> tuple[Manifest | None, str]:
    try:
        return read_manifest(path), ""
    except FileNotFoundError:
        return None, f"repogen did not build it: it has no {MANIFEST_FILE}"
    except RepogenError as error:
        return None, error.message
    except OSError as error:
        raise_if_exhausted(error)
        return None, f"{MANIFEST_FILE} cannot be read: {reason(error)}"


def _changed_at(path: Path) -> str:
    """Return a file's time of modification; a copy or a rename by repogen keeps it."""
    with suppress(OSError, ValueError, OverflowError):  # a year that datetime does not support
        return datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat().replace("+00:00", "Z")
    return ""


def _size_on_disk(directory: Path) -> int:
    """Return the bytes of the regular files in a tree; links are not followed."""
    size, entries_left = 0, _MAX_ENTRIES
    for parent, _, names in walk(directory):
        for name in names[:entries_left]:
            with suppress(OSError):
                status = (parent / name).lstat()
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
        entries_left -= len(names) + 1
        if entries_left <= 0:
            break
    return size
