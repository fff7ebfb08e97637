"""A sqlite database is opened only where its path led to before another user could replace a part of it."""

from __future__ import annotations

import tempfile
from hashlib import md5
from typing import TYPE_CHECKING

import pytest
from mlflow.store.db.utils import _safe_initialize_tables
from sqlalchemy import create_engine, text

from repogen.artifacts.tracking import Tracking
from repogen.registry.mlflow import library
from repogen.registry.mlflow.client import connect
from repogen.registry.mlflow.database import pin

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("part", ["directory", "directory/tracking.db"])
def test_link_that_replaces_a_part_of_the_path(tmp_path: Path, part: str) -> None:
    """Nothing is written to the database that it leads to; another one of the same process is opened as usual."""
    database, private = tmp_path / "directory" / "tracking.db", tmp_path / "private"
    for path in (database.parent, private):
        path.mkdir()
    pin(str(database))
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE a(x)"))
    engine.dispose()
    (tmp_path / part).rename(tmp_path / "moved")
    (tmp_path / part).symlink_to(private if part == "directory" else private / "tracking.db")
    with (
        pytest.raises(PermissionError, match=r"now leads to .*private/tracking\.db, and led to"),
        engine.begin() as connection,
    ):
        connection.execute(text("CREATE TABLE a(x)"))
    assert (private / "tracking.db").stat().st_size == 0
    with create_engine(f"sqlite:///{private}/tracking.db").begin() as connection:
        connection.execute(text("CREATE TABLE a(x)"))


def test_mlflow_opens_only_that_place(tmp_path: Path) -> None:
    """What pins it is the connection to MLflow."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "private").mkdir()
    uri = f"sqlite:///{tmp_path}/directory/tracking.db"
    connect(Tracking(uri, "repogen", register=True, root=tmp_path))
    (tmp_path / "directory").rename(tmp_path / "moved")
    (tmp_path / "directory").symlink_to("private")
    with pytest.raises(PermissionError, match="now leads to"), create_engine(uri).connect():
        pass


def test_link_of_the_user(tmp_path: Path) -> None:
    """It is followed, and may lead elsewhere for the next command."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for target in ("a", "b"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        pin(str(tmp_path / "link" / "tracking.db"))
        with create_engine(f"sqlite:///{tmp_path}/link/tracking.db").begin() as connection:
            connection.execute(text("CREATE TABLE a(x)"))
        assert (tmp_path / target / "tracking.db").exists()


def test_lock_of_the_tables_is_not_in_a_public_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With workspaces, MLflow opens a lock with a predictable name; a link of another user could have it."""
    assert library.mlflow is not None  # it changes MLflow
    private, public = tmp_path / "private", tmp_path / "public"
    private.write_text("keep", encoding="utf-8")
    public.mkdir()
    database = tmp_path / "m.db"
    engine = create_engine(f"sqlite:///{database}")
    name = f"db_init_lock-{md5(str(engine.url).encode(), usedforsecurity=False).hexdigest()}"
    (public / name).symlink_to(private)
    monkeypatch.setattr(tempfile, "tempdir", str(public))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _safe_initialize_tables(engine)
    assert private.read_text(encoding="utf-8") == "keep"
    assert (tmp_path / "cache" / "repogen" / "mlflow" / name).is_file()
