"""Completions for the shell."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete

from repogen.cli.group import main
from repogen.targets import newest_target

if TYPE_CHECKING:
    from pathlib import Path

SPEC = "models: {digits: {}, text_encoder: {}, text_labels: {}}\n"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a directory with two specs, which have problems, and two repositories."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repogen.yaml").write_text(SPEC, encoding="utf-8")
    (tmp_path / "other.yaml").write_text("models:\n  other:\n  broken: [", encoding="utf-8")
    (tmp_path / "second.yaml").write_text("models: {second: 1}", encoding="utf-8")
    for name in ("model_repository/published", "prod/synced"):
        (tmp_path / name).mkdir(parents=True)


def completed(*words: str) -> list[str]:
    """Return the completions of the last word."""
    *arguments, incomplete = words
    completion = ShellComplete(main, {}, "repogen", "_REPOGEN_COMPLETE")
    return [item.value for item in completion.get_completions(arguments, incomplete)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("bu",), ["build"]),
        (("build", "--model", ""), ["digits", "text_encoder", "text_labels"]),
        (("build", "--adopt", "text_"), ["text_encoder", "text_labels"]),
        (("build", "second.yaml", "--model", ""), ["second"]),
        (("build", "other.yaml", "--model", ""), []),
        (("build", "missing.yaml", "--model", ""), []),
        (("diagnose", "dig"), ["digits"]),
        (("diagnose", "--spec", "second.yaml", ""), ["second"]),
        (("promote", "d"), ["digits"]),
        (("history", "d"), ["digits"]),
        (("smoke", "--model", ""), ["published"]),
        (("serve", "prod", "--model", ""), ["synced"]),
        (("sync", "--repository", "prod", "--model", ""), ["synced"]),
        (("smoke", "missing", "--model", ""), []),
        (("versions", ""), ["published"]),
        (("verify", "prod", "--model", ""), ["synced"]),
        (("diff", "--repository", "prod", ""), ["synced"]),
        (("rollback", ""), ["published"]),
        (("prune", "--keep", "2", ""), ["published"]),
        (("sign", "--repository", "prod", ""), ["synced"]),
        (("publish", "--from", "prod", ""), ["synced"]),
        (("deploy", "--server", "127.0.0.1:8001", "published", "pub"), ["published"]),
        (("bench", "text_"), ["text_encoder", "text_labels"]),
        (("bench", "--repository", "prod", ""), ["synced"]),
        (("build", "--server", ""), ["docker", "embedded", "remote"]),
        (
            ("check", "--select", "RG40"),
            ["RG401", "RG402", "RG403", "RG404", "RG405", "RG406", "RG407", "RG408"],
        ),
        (("explain", "tracking.unr"), ["tracking.unreachable"]),
        (("server", "ins"), ["install"]),
    ],
)
def test_completion(words: tuple[str, ...], expected: list[str]) -> None:
    """Names come from the spec and the repository of the command line; files with problems complete to nothing."""
    assert completed(*words) == expected


@pytest.mark.parametrize("command", ["build", "check", "diagnose", "server install"])
def test_releases_are_completed(command: str) -> None:
    """The newest one comes first."""
    names = completed(*command.split(), "--target", "2")
    assert (names[0], "24.10" in names) == (newest_target().release, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_for_a_shell(shell: str) -> None:
    """As the docs say, through the installed entry point."""
    program = "import sys; sys.argv[0] = 'repogen'; from repogen.__main__ import main; main()"
    environment = {"_REPOGEN_COMPLETE": f"{shell}_source", "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, "_REPOGEN_COMPLETE" in run.stdout) == (0, True), run.stderr


def test_names_that_a_shell_would_interpret(tmp_path: Path) -> None:
    """Bash inserts a completion as it is, so the name of a directory in a foreign repository could be a command."""
    for name in ("$(date)", "`date`", "a;b", "a b", "a\nb", "a&b", "*", "~", "-x", "--server=a"):
        (tmp_path / "model_repository" / name).mkdir()
    assert completed("smoke", "--model", "") == ["published"]
    assert completed("smoke", "--model", "$") == []
