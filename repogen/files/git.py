"""Runs git in a directory whose repository is not trusted: its settings can name programs that git would run.

Archives can contain a directory ``.git``, whose settings are then those of the user's own files, and another user can
create a bare repository in a directory above. Sources: git-config(1) for ``core.fsmonitor``, ``core.hooksPath``,
``filter.*`` and ``safe.bareRepository``; gitrepository-layout(5); git(1) for the environment variables.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.files.temporary import temporary_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = 10
_SETTINGS = {"core.fsmonitor": "false", "core.hooksPath": os.devnull, "safe.bareRepository": "explicit"}
_COPIED = re.compile(r"(core\.(?:autocrlf|checkstat|eol|filemode|ignorecase|symlinks|trustctime))\n([a-z]{1,10})")
"""Settings of a repository that decide whether a file counts as changed, and their values."""
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256_DIGITS = 64


def git(directory: Path, *arguments: str) -> str | None:
    """Return what a git command prints that reads no file of the work tree, without white space at its ends.

    None if it fails, if git is not installed, or if the output is not UTF-8.

    No hook, monitor or transport of the repository is run.

    Args:
        directory: Any directory.
        arguments: The command.
    """
    try:
        return _run(directory, arguments).strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


def is_changed(directory: Path, commit: str) -> bool | None:
    """Return whether files of a directory differ from a commit; None if that fails. Untracked files do not count.

    git converts files while it compares them, with filters that the settings of the repository name. These settings
    could change at any time, so git uses a new private repository with the objects and the index of the other one.
    Filters in the user's own settings are run, such as git-lfs.
    """
    if not _COMMIT.fullmatch(commit):
        return None
    try:
        places = _run(
            directory,
            ("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "index", "--git-path", "objects"),
        )
        root, index, objects = places.splitlines()
        settings = dict(_COPIED.findall(_run(directory, ("config", "--null", "--list")).replace("\0", "\n\n")))
        with temporary_directory() as private:
            _create_repository(private, commit, Path(index).parent)
            variables = {
                "GIT_DIR": str(private),
                "GIT_WORK_TREE": root,
                "GIT_INDEX_FILE": index,
                "GIT_OBJECT_DIRECTORY": objects,
            }
            options = ("--porcelain", "--untracked-files=no", "--ignore-submodules=dirty", "--", ".")
            status = _run(directory, ("status", *options), settings, variables)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return bool(status)


def _create_repository(directory: Path, commit: str, original: Path) -> None:
    """Write a repository without objects that is at a commit; the rest of a split index is that of the original."""
    for name in ("objects", "refs"):
        (directory / name).mkdir()
    (directory / "HEAD").write_text(f"{commit}\n")
    config = "[core]\n\trepositoryformatversion = 1\n"
    if len(commit) == _SHA256_DIGITS:
        config += "[extensions]\n\tobjectformat = sha256\n"
    (directory / "config").write_text(config)
    for shared in original.glob("sharedindex.*"):
        (directory / shared.name).symlink_to(shared)


def _run(
    directory: Path,
    arguments: tuple[str, ...],
    settings: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    settings = {**(settings or {}), **_SETTINGS}
    environment = {
        **os.environ,
        "GIT_ALLOW_PROTOCOL": "none",  # a missing object could be fetched by a command of the settings
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        **(variables or {}),
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
        errors="strict",
        check=True,
        timeout=_SECONDS,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    return run.stdout
