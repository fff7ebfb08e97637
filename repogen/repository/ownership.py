"""``repogen.json`` at a repository's root: whether `repogen build` or `repogen sync` writes it; Triton ignores files.

The two number versions differently, by what the repository holds and by what the registry holds, so a repository
belongs to one of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from repogen.errors import PublishError
from repogen.repository.decode import malformed, parse_object
from repogen.repository.layout import models_of

if TYPE_CHECKING:
    from pathlib import Path

MARK_FILE = "repogen.json"
SCHEMA = 1


class RepositoryKind(Enum):
    """Who writes a repository."""

    BUILT = "built"
    SYNCED = "synced"


@dataclass(frozen=True)
class RepositoryMark:
    """What ``repogen.json`` says.

    Attributes:
        kind: Who writes the repository.
        aliases: The registry's aliases that a synced one follows; none for a built one.
    """

    kind: RepositoryKind
    aliases: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return it as JSON; equal values give equal text."""
        document: dict[str, object] = {"schema": SCHEMA, "kind": self.kind.value}
        if self.aliases:
            document["aliases"] = list(self.aliases)
        return json.dumps(document, ensure_ascii=False) + "\n"


def read_mark(repository: Path) -> RepositoryMark | None:
    """Return a repository's mark; None when it has none, or does not exist.

    Raises:
        MalformedRecordError: The file is not what repogen writes.
    """
    path = repository / MARK_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise malformed(str(path), "not UTF-8") from error
    except OSError as error:
        raise PublishError(f"{path} cannot be read: {error.strerror}", code="repository.mark") from error
    document = parse_object(text, str(path))
    if document.count("schema") > SCHEMA:
        raise malformed(str(path), f"schema {document.count('schema')} is newer than this repogen knows ({SCHEMA})")
    if (kind := document.text("kind")) not in {known.value for known in RepositoryKind}:
        raise malformed(str(path), f"`kind` {kind!r} is neither built nor synced")
    aliases = document.items("aliases") if "aliases" in document.members else []
    if not all(isinstance(alias, str) for alias in aliases):
        raise malformed(str(path), "`aliases` must hold strings")
    return RepositoryMark(RepositoryKind(kind), tuple(str(alias) for alias in aliases))


def require_built(repository: Path) -> None:
    """Refuse to build into a repository that follows a registry; one without a mark is `repogen build`'s.

    Raises:
        PublishError: It is a synced one, or its mark is damaged.
    """
    mark = read_mark(repository)
    if mark is not None and mark.kind is RepositoryKind.SYNCED:
        alias = next(iter(mark.aliases), "champion")
        raise PublishError(
            f"{repository} is written by `repogen sync`: it follows the registry, whose numbers its versions bear",
            f"Build into another repository (--repository), then `repogen promote NAME --alias {alias}` and "
            f"`repogen sync --alias {alias} --repository {repository}`.",
            code="publish.synced-repository",
        )


def require_synced(repository: Path, alias: str) -> None:
    """Refuse to sync a repository that `repogen build` writes, or that follows another alias.

    Raises:
        PublishError: It is a built one, it follows another alias, or its mark is damaged.
    """
    mark = read_mark(repository)
    if mark is not None and mark.kind is RepositoryKind.SYNCED:
        if mark.aliases != (alias,):
            raise _other_alias(repository, mark, alias)
    elif mark is not None or models_of(repository):
        raise PublishError(
            f"{repository} is written by `repogen build`: a sync would take its models for strangers",
            f"Sync into a directory of its own: `repogen sync --alias {alias} --repository OTHER`.",
            code="sync.built-repository",
        )


def _other_alias(repository: Path, mark: RepositoryMark, alias: str) -> PublishError:
    followed = ", ".join(mark.aliases) or "none"
    return PublishError(
        f"{repository} follows the alias {followed}, not {alias}: models without {alias} would no longer be served",
        f"Sync {alias} into another --repository, or, to have this one follow it, change `aliases` in "
        f"{repository / MARK_FILE}.",
        code="sync.other-alias",
    )
