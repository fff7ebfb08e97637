"""``repogen.json`` in a repository's root: which command owns the repository, `repogen build` or `repogen sync`.

The two commands number versions differently: `build` counts the repository's versions, and `sync` uses the registry's
version numbers. Therefore a repository belongs to one of them. Triton ignores files in the root.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from repogen.artifacts.file_names import OWNER_FILE
from repogen.errors import PublishError
from repogen.repository.decode import SCHEMA, Document, read_record
from repogen.repository.layout import is_model, models_of

if TYPE_CHECKING:
    from pathlib import Path

NEW_OWNER_FILE = f".{OWNER_FILE}.new"
"""Temporary name under which the file is written before it is renamed."""


class RepositoryKind(Enum):
    """The command that writes a repository."""

    BUILT = "built"
    SYNCED = "synced"


class _Document(Document):
    """The format of the file."""

    kind: RepositoryKind
    aliases: tuple[str, ...] = ()


_DOCUMENT = TypeAdapter(_Document)


@dataclass(frozen=True)
class RepositoryOwner:
    """The owner of a repository.

    Attributes:
        kind: The command that writes it.
        aliases: The registry's aliases that a synced repository follows; empty for a built one.
    """

    kind: RepositoryKind
    aliases: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the contents of ``repogen.json``."""
        document: dict[str, object] = {"schema": SCHEMA, "kind": self.kind.value}
        if self.aliases:
            document["aliases"] = self.aliases
        return json.dumps(document, ensure_ascii=False) + "\n"


def read_owner(repository: Path) -> RepositoryOwner | None:
    """Return a repository's owner; None if it has none, or does not exist.

    Raises:
        MalformedRecordError: The file does not have the format that repogen writes.
        PublishError: The file can't be read.
    """
    path = repository / OWNER_FILE
    try:
        document = read_record(_DOCUMENT, path, str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PublishError(f"{path} cannot be read: {error.strerror}", code="repository.mark") from error
    return RepositoryOwner(document.kind, document.aliases)


def require_built(repository: Path) -> None:
    """Require a repository that `repogen build` may write: its own, or one without an owner.

    Raises:
        PublishError: `repogen sync` owns it, ``repogen.json`` is damaged, or the directory is used for something else.
    """
    owner = read_owner(repository)
    if owner is None and _is_used_for_something_else(repository):
        raise PublishError(
            f"{repository} is not a model repository: it has directories, and none of them is a model",
            "choose a new or an empty directory, with --repository or `repository:` in the spec: Triton loads every "
            "directory in a repository as a model",
            code="publish.not-a-repository",
        )
    if owner is not None and owner.kind is RepositoryKind.SYNCED:
        alias = next(iter(owner.aliases), "champion")
        raise PublishError(
            f"{repository} is written by `repogen sync`: its version numbers come from the registry",
            f"build or publish into another repository, then `repogen promote NAME --alias {alias}` and "
            f"`repogen sync --alias {alias} --repository {repository}`",
            code="publish.synced-repository",
        )


def _is_used_for_something_else(repository: Path) -> bool:
    """Return whether a directory, such as ``/etc``, has directories with content, and none of them is a model."""
    directories = [repository / name for name in models_of(repository)]
    return not any(map(is_model, directories)) and any(map(_has_content, directories))


def _has_content(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except OSError:
        return True


def require_synced(repository: Path, alias: str) -> None:
    """Require a repository that `repogen sync` may write: one that follows ``alias``, or an empty one.

    Raises:
        PublishError: `repogen build` owns it, it follows another alias, or ``repogen.json`` is damaged.
    """
    owner = read_owner(repository)
    if owner is not None and owner.kind is RepositoryKind.SYNCED:
        if owner.aliases != (alias,):
            raise _other_alias(repository, owner, alias)
    elif owner is not None or models_of(repository):
        origin = "is written by `repogen build`" if owner is not None else f"contains directories, but no {OWNER_FILE}"
        raise PublishError(
            f"{repository} {origin}: sync would not recognize its models",
            f"sync into a separate directory: `repogen sync --alias {alias} --repository OTHER`",
            code="sync.built-repository",
        )


def _other_alias(repository: Path, owner: RepositoryOwner, alias: str) -> PublishError:
    followed = ", ".join(owner.aliases) or "none"
    return PublishError(
        f"{repository} follows the alias {followed}, not {alias}: models without {alias} would no longer be served",
        f"sync {alias} into another --repository; to make this repository follow it, change `aliases` in "
        f"{repository / OWNER_FILE}",
        code="sync.other-alias",
    )
