"""Another user replaces a file or a directory of a repository by a symlink when a command opens it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import repogen
from repogen.errors import RepogenError
from tests.support.keys import write_keys
from tests.support.swapping import swap_when_opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.published import Publisher

OTHER_USER = 65534
CONTENT = '{"SECRET": "token"}\nSECRET: token\n'
COMMANDS: dict[str, Callable[[Path], object]] = {
    "check": repogen.check,
    "diff": lambda repository: repogen.diff("m", repository=repository),
    "prune": lambda repository: repogen.prune(keep=1, repository=repository, ignore_registry=True),
    "publish": lambda repository: repogen.publish("m", source=repository, target=repository.parent / "target"),
    "report": lambda repository: repogen.report(repository, output=repository.parent / "report.html"),
    "rollback": lambda repository: repogen.rollback("m", repository=repository),
    "sign": lambda repository: repogen.sign("m", key=write_keys(repository.parent)[0], repository=repository),
    "verify": repogen.verify,
    "versions": lambda repository: repogen.versions(repository=repository),
}
"""Each reads a repository that another user may own."""


@pytest.mark.parametrize("file", ["config.pbtxt", "2/config.pbtxt", "2/manifest.json", "1/manifest.json"])
@pytest.mark.parametrize("replaced", ["file", "version", "model"])
@pytest.mark.parametrize("command", COMMANDS)
def test_private_file_is_not_read(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, replaced: str, file: str
) -> None:
    """Its text is not in the output, in an error, or in a file that the command writes."""
    publisher.publish()
    publisher.publish()
    model, private = publisher.repository / "m", tmp_path / "private"
    shutil.copytree(model, private)
    for path in private.rglob("*"):
        if path.is_file():
            path.write_text(CONTENT, encoding="utf-8")
    below = {"file": file, "version": file.rpartition("/")[0], "model": ""}[replaced]
    swap_when_opened(monkeypatch, model / file, model / below, private / below, owner=OTHER_USER)
    try:
        output = str(COMMANDS[command](publisher.repository))
    except RepogenError as error:
        output = f"{error} {error.hint}"
    monkeypatch.undo()
    assert "SECRET" not in output
    assert "token" not in output
    shutil.rmtree(private)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"SECRET" in path.read_bytes()]
