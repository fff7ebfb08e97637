"""Files of the working directory that another user created, for example in /tmp."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.artifacts.attestation import SigningKey
from repogen.cli.group import main
from repogen.deployments.target import parse_target
from repogen.errors import SpecError
from repogen.files import has_trusted_owner

if TYPE_CHECKING:
    from collections.abc import Callable

SPEC = """\
mlflow: {tracking_uri: "http://127.0.0.1:9"}
models:
  m: {source: {factory: "models.py:build"}, inputs: {x: {dtype: float32, shape: [batch, 4]}}}
"""
FOREIGN = "belongs to another user"
OTHER_USER = 4711


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a spec, its code and a repository that belong to another user."""
    (tmp_path / "repogen.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "key.pem").touch()
    (tmp_path / "models.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    (tmp_path / "model_repository" / "m" / "1").mkdir(parents=True)
    (tmp_path / "own" / "m" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    lstat, names = Path.lstat, {"repogen.yaml", "models.py", "model_repository"}

    def of_another(path: Path) -> os.stat_result:
        status = lstat(path)
        return os.stat_result((*status[:4], OTHER_USER, *status[5:])) if path.name in names else status

    monkeypatch.setattr(Path, "lstat", of_another)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "build", "plan", "diagnose m", "tune m", "bench", "bench --repository own", "promote m", "history m",
        "sync --alias champion", "versions --repository own", "prune --keep 1 --repository own", "smoke", "serve",
        "sync --alias champion --spec own.yaml", "deploy --server 127.0.0.1:9", "sign m --sign-key key.pem",
        "rollback m", "prune --keep 1 --ignore-registry --spec own.yaml",
    ],
)  # fmt: skip
def test_commands_do_not_use_them_unless_they_are_named(planted: Path, command: str) -> None:
    """Neither the code of a spec or of a repository, nor the server to which credentials would be sent."""
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, FOREIGN in result.output) == (2, True)
    assert "repogen explain working-directory.foreign" in result.output
    assert not (planted / "ran").exists()


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "call",
    [
        repogen.build,
        repogen.plan,
        repogen.load_spec,
        partial(repogen.bench, repository="own"),
        partial(repogen.tune, "m"),
        repogen.smoke,
        partial(repogen.deploy, servers=["127.0.0.1:9"]),
        partial(repogen.sync, alias="champion", tracking_uri="http://127.0.0.1:9"),
        partial(repogen.sign, "m", key=SigningKey(Path("key.pem"))),
        partial(repogen.rollback, "m"),
        partial(repogen.prune, keep=1, ignore_registry=True),
        partial(parse_target, "triton-repogen://127.0.0.1:9", {}),
    ],
)
def test_functions_do_not_use_them_unless_they_are_named(call: Callable[[], object]) -> None:
    """Their defaults are those of the commands; ``mlflow deployments`` has the same repository."""
    with pytest.raises(SpecError, match=FOREIGN):
        call()


@pytest.mark.parametrize(
    "command",
    ["plan repogen.yaml", "plan ./repogen.yaml", "smoke model_repository", "deploy --repository model_repository"],
)
@pytest.mark.usefixtures("planted")
def test_named_files_are_used(command: str) -> None:
    """The user asked for it."""
    assert FOREIGN not in CliRunner().invoke(main, command.split()).output


def test_owners(tmp_path: Path) -> None:
    """Own files are used, and so are links to them; a missing one is reported by the command."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("missing")
    assert all(has_trusted_owner(tmp_path / name, tmp_path) for name in ("file", "link", "dangling"))
    with pytest.raises(FileNotFoundError):
        has_trusted_owner(tmp_path / "missing", tmp_path)


def test_no_file_is_writable_by_all_users(tmp_path: Path) -> None:
    """Another user could change what is verified, before it is published."""
    command = [sys.executable, "-m", "repogen", "init", str(tmp_path / "new")]
    subprocess.run(command, check=True, capture_output=True, umask=0)
    files = [tmp_path / "new", *(tmp_path / "new").iterdir()]
    assert len(files) > 2
    assert [path.name for path in files if path.stat().st_mode & 0o002] == []
