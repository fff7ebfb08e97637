"""The steps of the composite action, each a subcommand; inputs come by the environment, and no shell reads them.

Run by the interpreter that the models are built with, before repogen is installed: the standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[3]
"""The action's own checkout, which is repogen's."""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INTERRUPTED = 130
"""repogen's exit code after Ctrl-C or SIGTERM."""
COMMANDS = ("build", "smoke", "promote", "sync")
_SEPARATORS = re.compile(r"[\s,]+")
# -P: the working directory holds the user's files, and none of them stands in for repogen.
_REPOGEN = (sys.executable, "-P", "-m", "repogen")


class InputError(Exception):
    """An input is not what it may be."""


def plan() -> None:
    """Say what to cache, and under which keys."""
    if _input("CACHE") != "true":
        return
    python = f"{platform.system()}-{platform.machine()}-{sys.version_info.major}.{sys.version_info.minor}"
    outputs = {}
    if _installs():
        found = subprocess.run(
            [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:  # it fails where pip's cache is off
            outputs["pip-cache"] = found.stdout.strip()
            outputs["pip-key"] = f"repogen-pip-{python}-{_digest('pyproject.toml', 'constraints.txt')}"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    outputs["triton-cache"] = str(Path(cache) / "repogen")
    outputs["triton-key"] = f"repogen-triton-{python}-{_version()}-{_digest('repogen/data/embedded.lock.json')}"
    _output(outputs)


def install() -> None:
    """Install what the models import, and repogen unless it is there."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    constrained = ["-c", str(ROOT / "constraints.txt")]
    if _installs():
        index = _torch_index()
        subprocess.run([*pip, *constrained, *(("--extra-index-url", index) if index else ()), "torch"], check=True)
        subprocess.run([*pip, *constrained, f"{ROOT}[build,track]"], check=True)
    if requirements := _input("REQUIREMENTS"):
        subprocess.run([*pip, "-r", requirements], check=True, cwd=_directory())


def run() -> None:
    """Run the command; for `promote`, once for each model."""
    commands = command_lines(os.environ)
    if not commands:
        print("no model to promote: none was published and registered", flush=True)
    failed = 0
    for command in commands:
        code = _followed(command)
        failed = failed or code
        if code == INTERRUPTED:
            break
    _output({"failed": "true" if failed else "false"})
    sys.exit(failed)


def _followed(command: list[str]) -> int:
    """Run a command; a cancelled job's signal becomes its own, and it has the time to clean up."""
    with subprocess.Popen(command, cwd=_directory()) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: process.terminate())
        return process.wait()


def command_lines(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the command lines that the inputs ask for.

    Args:
        environment: With the inputs as ``INPUT_…``.

    Raises:
        InputError: An unknown command, or arguments whose quotes do not match.
    """
    given = {name.removeprefix("INPUT_"): value for name, value in environment.items() if name.startswith("INPUT_")}
    command = given.get("COMMAND", "")
    if command not in COMMANDS:
        raise InputError(f"command is {command!r}, not one of {', '.join(COMMANDS)}")
    try:
        extra = shlex.split(given.get("EXTRA_ARGS", ""))
    except ValueError as error:
        raise InputError(f"extra-args cannot be split: {error}") from error
    start = [*_REPOGEN, command]
    if command == "promote":
        options = [*_flag("--spec", given.get("SPEC", "")), *_tracking(given), *_server(given), *extra]
        return [
            [*start, *options, "--", *model]  # `--` ends the options: no name becomes one
            for model in _promotable(given.get("MODELS", ""))
        ]
    names = [part for name in _names(given.get("MODELS", "")) for part in _flag("--model", name)]
    return [[*start, *names, *_OPTIONS[command](given), *extra, *_OPERANDS[command](given)]]


def _build_options(given: dict[str, str]) -> list[str]:
    asked = ["--no-smoke"] if given.get("SMOKE") == "none" else _server(given)
    return [*_repository(given), *_flag("--target", given.get("TARGET", "")), *_tracking(given), *asked]


def _repository(given: dict[str, str]) -> list[str]:
    return _flag("--repository", given.get("REPOSITORY", ""))


def _tracking(given: dict[str, str]) -> list[str]:
    uri = given.get("MLFLOW_TRACKING_URI", "").strip()
    if "@" in urlsplit(uri).netloc:
        raise InputError(
            "mlflow-tracking-uri holds credentials; give them to the job as MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, from secrets"
        )
    return _flag("--tracking-uri", uri)


def _server(given: dict[str, str]) -> list[str]:
    return [] if given.get("SMOKE") == "none" else _flag("--server", given.get("SMOKE", ""))


_OPTIONS: dict[str, Callable[[dict[str, str]], list[str]]] = {
    "build": _build_options,
    "smoke": _server,
    "sync": lambda given: [*_repository(given), *_tracking(given)],
}
_OPERANDS: dict[str, Callable[[dict[str, str]], list[str]]] = {
    "build": lambda given: ["--", given.get("SPEC") or "repogen.yaml"],
    "smoke": lambda given: ["--", given.get("REPOSITORY") or "model_repository"],
    "sync": lambda _given: [],
}


def _flag(name: str, value: str) -> list[str]:
    """Return an option with its value in one word, so that no value becomes an option."""
    return [f"{name}={value}"] if value else []


def _names(text: str) -> list[str]:
    """Return the names in a list of names, or in JSON as this action's output `models` holds it."""
    if text.lstrip().startswith("["):
        return [entry["name"] for entry in _entries(text)]
    return [name for name in _SEPARATORS.split(text) if name]


def _promotable(text: str) -> list[list[str]]:
    """Return name and version of each model to promote: of a build's output those that it published and registered."""
    if not text.lstrip().startswith("["):
        return [[name] for name in _names(text)]
    published = (entry for entry in _entries(text) if entry.get("status") == "published")
    return [[entry["name"], str(entry["registry_version"])] for entry in published if entry.get("registry_version")]


def _entries(text: str) -> list[dict[str, str]]:
    try:
        entries = json.loads(text)
        return [{"name": str(entry["name"]), **entry} for entry in entries]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"models is neither names nor this action's output: {error!r}") from error


def _installs() -> bool:
    choice = _input("INSTALL")
    if choice not in {"auto", "always", "never"}:
        raise InputError(f"install is {choice!r}, not auto, always or never")
    return choice == "always" or (choice == "auto" and not _present())


def _present() -> bool:
    """Whether the interpreter can build with this very version of repogen."""
    code = "import repogen, importlib.util as u; print(repogen.__version__, u.find_spec('torch') is not None)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.anchor)
    return found.stdout.split() == [_version(), "True"]


def _version() -> str:
    text = (ROOT / "repogen" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    return match[1] if match else "0"


def _digest(*files: str) -> str:
    return hashlib.sha256(b"".join((ROOT / file).read_bytes() for file in files)).hexdigest()[:16]


def _torch_index() -> str:
    choice = _input("TORCH_INDEX")
    if choice == "auto":
        # PyPI's torch for Linux brings CUDA along: gigabytes that GitHub's own runners have no use for.
        return CPU_INDEX if os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted" else ""
    return "" if choice == "none" else choice


def _output(values: dict[str, str]) -> None:
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in values.items())


def _directory() -> str:
    return _input("WORKING_DIRECTORY") or "."


def _input(name: str) -> str:
    return os.environ.get(f"INPUT_{name}", "").strip()


if __name__ == "__main__":
    try:
        {"plan": plan, "install": install, "run": run}[sys.argv[1]]()
    except InputError as error:
        message = str(error).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        print(f"::error title=repogen's inputs::{message}", flush=True)
        sys.exit(2)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
