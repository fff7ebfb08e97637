"""The lazy command group."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from repogen.cli import group
from repogen.cli.group import handle_errors, main

if TYPE_CHECKING:
    from pathlib import Path

NAMES = main.list_commands(click.Context(main))


@pytest.mark.parametrize("name", NAMES)
def test_the_list_says_what_the_command_says(name: str) -> None:
    """The line in ``repogen --help`` is the first sentence of the command's own help."""
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    listing = context.get_help()
    assert f"{name} " in listing
    first = (command.help or "").split("\n\n")[0].replace("\n", " ")
    assert f" {first}\n" in f"{listing}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["build", "--help"], ["check", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help is immediate: no torch, no ONNX Runtime, no MLflow, no gRPC."""
    program = (
        "import sys\nfrom repogen.cli.group import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'onnxruntime', 'mlflow', 'grpc', 'onnxsim', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr.strip() == "[]"


def test_an_unknown_command_is_a_usage_error() -> None:
    """Click's own message and exit code."""
    run = subprocess.run([sys.executable, "-m", "repogen", "biuld"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "No such command 'biuld'" in run.stderr


@pytest.mark.parametrize("option", ["--weights", "--name", "--examples"])
def test_option_that_needs_another_one_is_a_usage_error(option: str, tmp_path: Path) -> None:
    """It is found while the command runs, and is not a bug of repogen."""
    result = CliRunner().invoke(main, ["init", str(tmp_path / "new"), option, "value"])
    assert (result.exit_code, "Usage:" in result.output, "bug" in result.output) == (2, True, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["promote", "m", "2", "--rollback"],
        ["promote", "m", "--rollback", "--gate", "size=off"],
        ["rollback", "m", "--release", "--to", "1"],
        ["diff", "m", "--markdown", "--json"],
    ],
)
def test_contradicting_options_are_usage_errors(arguments: list[str]) -> None:
    """`repogen explain` has no page about them."""
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, "Usage:" in result.output, "explain" in result.output) == (2, True, False)


def test_misspelled_command_has_a_suggestion() -> None:
    """The most similar command."""
    result = CliRunner().invoke(main, ["biuld"])
    assert (result.exit_code, 'did you mean "build"?' in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["help"], "No such command 'help'; see `repogen --help`"),
        (["help", "build"], "No such command 'help'; write repogen build --help"),
        (["help", "biuld"], "No such command 'help'; see `repogen --help`"),
        (["check", "--json"], "No such option '--json'; use --format json"),
    ],
    ids=" ".join,
)
def test_help_as_a_command_and_json_of_check(arguments: list[str], hint: str) -> None:
    """The message says what to write, and the help does not list them."""
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, hint in result.output) == (2, True)
    assert "--json" not in CliRunner().invoke(main, ["check", "--help"]).output


def test_option_of_a_command_before_its_name() -> None:
    """The message says where it belongs."""
    result = CliRunner().invoke(main, ["--model", "x", "build"])
    assert result.exit_code == 2
    assert (
        "No such option '--model'; options of a command follow its name, as in repogen build --model" in result.output
    )


@pytest.mark.parametrize(
    ("code", "exit_code", "message"),
    [
        (errno.ENOSPC, 7, "No space left on device: x"),
        (errno.EROFS, 7, "Read-only file system: x"),
        (errno.EMFILE, 7, "ulimit -n"),
        (errno.ENOENT, 70, "this is a bug in repogen"),
    ],
)
def test_errors_of_the_machine_are_not_bugs(
    capsys: pytest.CaptureFixture[str], code: int, exit_code: int, message: str
) -> None:
    """Any operation can have them; any other OSError that nothing handles is a bug."""

    @click.command()
    def command() -> None:
        with handle_errors(debug=False):
            raise OSError(code, os.strerror(code), "x")

    with pytest.raises(SystemExit) as caught:
        command.main([], standalone_mode=False)
    assert caught.value.code == exit_code
    assert message in " ".join(capsys.readouterr().err.split())


def test_no_memory_to_report_an_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Formatting the traceback of the first error needs memory as well."""

    def command(**_options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(group, "main", command)
    with pytest.raises(SystemExit) as caught:
        group.run()
    assert (caught.value.code, capfd.readouterr().err) == (
        7, "error: the command cannot continue: there is not enough memory\n",
    )  # fmt: skip


def test_low_limit_of_open_files() -> None:
    """Below it, gRPC ends the process with SIGABRT."""
    command = f"ulimit -n 20; exec {sys.executable} -m repogen explain RG101"
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)  # noqa: S607 - the system's
    assert (run.returncode, run.stdout) == (7, "")
    assert "a process may have only 20 open files" in run.stderr
    assert "ulimit -n 4096" in run.stderr


@pytest.mark.parametrize("arguments", [["build"], ["history", "m", "--spec"]])
def test_directory_as_a_spec_is_named(tmp_path: Path, arguments: list[str]) -> None:
    """With the file to pass instead."""
    result = CliRunner().invoke(main, [*arguments, str(tmp_path)])
    assert result.exit_code == 2
    assert f"{tmp_path} is a directory, not a spec" in result.stderr
    assert f"pass the file, for example {tmp_path / 'repogen.yaml'}" in result.stderr


def test_arguments_are_not_written_to_a_terminal_unchanged() -> None:
    """A file name from elsewhere may contain an escape sequence."""
    command = [sys.executable, "-m", "repogen", "build", "a", "\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "Got unexpected extra argument" in run.stderr
    assert "\x1b" not in run.stderr
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in run.stderr


@pytest.mark.parametrize("output_format", ["text", "json", "github"])
def test_names_of_a_repository_are_not_commands(
    output_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a terminal nor of a GitHub runner, in any format of ``check``."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    model = tmp_path / "\x1b[2J\n::error::a\r##[group]\N{RIGHT-TO-LEFT OVERRIDE}"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('name: "##[error]\\n::error::b"\nbackend: "\x1b]0;x"\n', encoding="utf-8")
    result = CliRunner().invoke(main, ["check", str(tmp_path), "--format", output_format])
    assert result.exit_code == 1
    commands = [line for line in result.stdout.splitlines() if line.lstrip().startswith("::") or "##[" in line]
    assert len(commands) == (len(result.stdout.splitlines()) if output_format == "github" else 0)
    assert all(line.startswith(("::error file", "::error title", "::warning title")) for line in commands)
    assert not {"\x1b", "\r", "\N{RIGHT-TO-LEFT OVERRIDE}"} & set(result.stdout)
    if output_format == "json":
        assert json.loads(result.stdout)["findings"]


def test_user_without_a_home_directory_is_not_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """Libraries such as MLflow look for it when they are imported."""

    @click.command()
    def command() -> None:
        with handle_errors(debug=False):
            raise RuntimeError("Could not determine home directory.")

    with pytest.raises(SystemExit) as caught:
        command.main([], standalone_mode=False)
    assert caught.value.code == 2
    assert "home-directory" in capsys.readouterr().err
