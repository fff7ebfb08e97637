"""Commands in messages, in the pages of `repogen explain` and in templates: click accepts their names and options."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import repogen
from repogen.cli.group import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(repogen.__file__).parent
COMMAND = re.compile(r"`(repogen [^`]*)`")
VALUE = "X"
"""Stands for what a message inserts; none of the options has only some values."""
NO_ARGUMENTS = {"…", "..."}


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file, those of Python's strings one by one."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield content
        return
    tree = ast.parse(content)
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {*ast.walk(node)} - {node}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


def problem(text: str) -> str:
    """Return why click does not accept a command; an option at its end may be without a value, as in a sentence."""
    arguments = [argument for argument in shlex.split(text)[1:] if argument not in NO_ARGUMENTS]
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        following = command.get_command(context, name)
        if following is None:
            return f"there is no command {name}"
        command, context = following, click.Context(following, info_name=name)
    try:
        _, rest, _ = command.make_parser(context).parse_args([*arguments])
    except click.BadOptionUsage as error:
        return "" if arguments[-1] == error.option_name else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    return f"too many arguments: {rest}" if rest else ""


def test_commands_in_texts() -> None:
    """A user copies them."""
    files = [path for suffix in ("py", "md", "j2") for path in sorted(ROOT.parent.glob(f"repogen/**/*.{suffix}"))]
    files += sorted((ROOT.parent / "templates").rglob("*.j2"))
    commands = {
        command: path
        for path in files
        for text in texts(path)
        for command in COMMAND.findall(" ".join(text.split()))
        if not command.startswith(f"repogen init{VALUE}")
    }
    assert len(commands) > 50
    problems = {f"{path.name}: {command}": problem(command) for command, path in commands.items()}
    assert {place: text for place, text in problems.items() if text} == {}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("repogen other", "there is no command other"),
        ("repogen build --no-such", "No such option"),
        ("repogen verify a b", "too many arguments: ['b']"),
        ("repogen server other", "there is no command other"),
    ],
)
def test_wrong_commands_are_detected(command: str, text: str) -> None:
    """The test above would find them."""
    assert problem(command).startswith(text)


@pytest.mark.parametrize("name", ["open", "oci", "working_copy"])
def test_option_that_not_every_command_has(name: str) -> None:
    """Stores are read by all commands, and only some stage files."""
    hints = [text for text in texts(ROOT / "stores" / f"{name}.py") if "--stage-dir" in text]
    assert hints
    assert all("--stage-dir if the command has it" in " ".join(hint.split()) for hint in hints)
