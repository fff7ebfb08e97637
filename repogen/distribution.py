"""The installed distribution of repogen: its dependencies, and the command that installs one of its extras."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

DISTRIBUTION = "triton-repogen"
_CHECKOUT = Path(__file__).resolve().parent.parent
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


@cache
def dependencies() -> dict[str, tuple[Requirement, ...]]:
    """Return the dependencies of repogen by extra; the key of those without an extra is the empty string."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        project = tomllib.loads((_CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = {"": project["dependencies"], **project["optional-dependencies"]}
        return {extra: tuple(map(Requirement, lines)) for extra, lines in extras.items()}
    grouped: dict[str, list[Requirement]] = {}
    for line in lines:
        extra = _EXTRA.search(line)
        grouped.setdefault(extra[1] if extra else "", []).append(Requirement(line))
    return {extra: tuple(requirements) for extra, requirements in grouped.items()}


def install_command(*extras: str) -> str:
    """Return the command that adds extras to this installation, which may be a checkout, a wheel, or from an index."""
    names = f"[{','.join(extras)}]"
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"pip install -e {shlex.quote(f'{_CHECKOUT}{names}')}"
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    path = unquote(urlsplit(url).path)
    if url.startswith("file:") and Path(path).exists():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{path}{names}')}"
    if "vcs_info" in origin:
        commit = origin["vcs_info"].get("commit_id", "")
        return f"pip install '{DISTRIBUTION}{names} @ {origin['vcs_info']['vcs']}+{url}@{commit}'"
    if url:  # the wheel is gone: name the packages themselves
        requirements = [requirement for extra in extras for requirement in dependencies().get(extra, ())]
        return "pip install " + " ".join(shlex.quote(f"{each.name}{each.specifier}") for each in requirements)
    return f"pip install '{DISTRIBUTION}{names}'"
