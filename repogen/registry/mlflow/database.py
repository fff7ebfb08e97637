"""Opens a sqlite database only where its path led to before: another user may replace a part of the path."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from repogen.files.resolve import resolved

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

_places: dict[str, str] = {}
"""Path of a database, as the tracking URI names it -> the same without symlinks."""


def pin(database: str) -> None:
    """Let SQLAlchemy open a database only where its path leads to now.

    Raises:
        SpecError: A symlink of another user, who does not own what it leads to, is on the way.
    """
    _places[database] = str(resolved(Path(database)))


@event.listens_for(Engine, "do_connect")
def _connect(dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:  # noqa: ANN401 - of a driver
    """Return a connection to a pinned database, or None for SQLAlchemy to connect to another one.

    SQLite follows the symlinks in a path first, and then opens the file without following another one.

    Raises:
        OSError: The database is in another place.
    """
    place = _places.get(arguments[0]) if dialect.name == "sqlite" and arguments else None
    if place is None:
        return None
    connection = dialect.connect(*arguments, **options)
    opened = connection.cursor().execute("PRAGMA database_list").fetchone()[2]
    if opened != place:
        connection.close()
        raise OSError(errno.EPERM, f"now leads to {opened}, and led to {place} before", arguments[0])
    return connection
