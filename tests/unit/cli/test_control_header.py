"""The option --control-header: accepted by every command that opens a server, and never printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from repogen.cli.group import CONTROL_VARIABLE, main
from repogen.serving.control import VARIABLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the variable, which the option sets."""
    monkeypatch.setenv(VARIABLE, "unused=unused")


@pytest.mark.parametrize("command", ["build", "deploy", "promote", "serve", "smoke"])
def test_commands_that_open_a_server_have_the_option(command: str) -> None:
    """Its help names the variable, which other users cannot read."""
    text = CliRunner().invoke(main, [command, "--help"]).output
    assert "--control-header KEY=VALUE" in text
    assert CONTROL_VARIABLE == VARIABLE
    assert VARIABLE in text


@pytest.mark.parametrize("header", ["secret", "=secret", "key=secret secret", "key=secret"])
def test_header_is_not_printed(tmp_path: Path, header: str) -> None:
    """An invalid one is an error; a valid one is sent to a server that does not respond."""
    (tmp_path / "m").mkdir()
    arguments = ["smoke", str(tmp_path), "--server", "localhost:1", "--control-header", header, "--json", "--debug"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code not in {0, 70}
    assert "secret" not in result.output
    assert ("is not KEY=VALUE" in result.output) is (header != "key=secret")
