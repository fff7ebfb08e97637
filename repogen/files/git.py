"""Runs git in a directory whose repository is not trusted: its settings can name programs that git would run.

Archives can contain a directory ``.git``, whose settings are then those of the user's own files. Sources: git-config(1)
for ``core.fsmonitor``, ``core.hooksPath`` and ``filter.*``; git(1) for the environment variables.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SECONDS = 10
_SETTINGS = {"core.fsmonitor": "false", "core.hooksPath": os.devnull}
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}
_OWN_SCOPES = frozenset({"local", "worktree"})


def git(directory: Path, *arguments: str) -> str | None:
    """Return what a git command prints, without white space at its ends.

    None if it fails, if git is not installed, or if the output is not UTF-8.

    No hook, filter, monitor or transport of the repository is run. Filters in the user's own settings are, such as
    git-lfs.

    Args:
        directory: Any directory.
        arguments: The command.
    """
    try:
        return _run(directory, _SETTINGS | _without_filters(directory), arguments).strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


def _without_filters(directory: Path) -> dict[str, str]:
    """Return the settings that turn off the filters of the repository itself."""
    listing = ("config", "--show-scope", "--null", "--name-only", "--get-regexp", r"^filter\.")
    try:
        words = _run(directory, _SETTINGS, listing).split("\0")
    except subprocess.CalledProcessError:  # there are no filters
        return {}
    pairs = zip(words[::2], words[1::2], strict=False)
    drivers = {key.rpartition(".")[0] for scope, key in pairs if scope in _OWN_SCOPES}
    return {f"{driver}.{name}": value for driver in sorted(drivers) for name, value in _NO_FILTER.items()}


def _run(directory: Path, settings: Mapping[str, str], arguments: tuple[str, ...]) -> str:
    environment = {
        **os.environ,
        "GIT_ALLOW_PROTOCOL": "none",  # a missing object could be fetched by a command of the settings
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    before = environment.get("GIT_CONFIG_COUNT", "")
    first = int(before) if before.isascii() and before.isdecimal() else 0
    environment["GIT_CONFIG_COUNT"] = str(first + len(settings))
    for index, (key, value) in enumerate(settings.items(), first):
        environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    run = subprocess.run(
        ["git", "-C", str(directory), *arguments],  # noqa: S607 - the user's own git, from PATH
        capture_output=True,
        text=True,
        errors="strict",  # a filter whose name was changed would not be turned off
        check=True,
        timeout=_SECONDS,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    return run.stdout
