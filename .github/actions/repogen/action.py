"""The steps of the composite action, one subcommand each; inputs are environment variables that no shell evaluates.

The interpreter that builds the models runs it, before repogen is installed: it imports only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[3]
"""The checkout of the action, which is a checkout of repogen."""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INTERRUPTED = 130
"""repogen's exit code after Ctrl-C, SIGTERM or SIGHUP."""
COMMANDS = ("build", "check", "smoke", "promote", "sync")
_SEPARATORS = re.compile(r"[\s,]+")
# -P: no file in the working directory is imported instead of repogen.
_REPOGEN = (sys.executable, "-P", "-m", "repogen")


class InputError(Exception):
    """The value of an input is invalid."""


def plan() -> None:
    """Set the directories to cache, and their keys, as outputs."""
    if _input("CACHE") != "true":
        return
    python = f"{platform.system()}-{platform.machine()}-{sys.version_info.major}.{sys.version_info.minor}"
    outputs = {}
    if _installs():
        pip = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False)
        if pip.returncode == 0:  # it fails if pip's cache is disabled
            outputs["pip-cache"] = pip.stdout.strip()
            outputs["pip-key"] = f"repogen-pip-{python}-{_digest('pyproject.toml', 'constraints.txt')}"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    outputs["triton-cache"] = str(Path(cache) / "repogen")
    outputs["triton-key"] = f"repogen-triton-{python}-{_version()}-{_digest('repogen/data/embedded.lock.json')}"
    _output(outputs)


def install() -> None:
    """Install the requirements of the models, and repogen unless it is installed."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    if _installs():
        index = _torch_index()
        subprocess.run([*pip, *constraints, *(("--extra-index-url", index) if index else ()), "torch"], check=True)
        subprocess.run([*pip, *constraints, f"{ROOT}[build,track]"], check=True)
    if requirements := _input("REQUIREMENTS"):
        subprocess.run([*pip, "-r", requirements], check=True, cwd=_directory())


def run() -> None:
    """Run the command; `promote` runs once per model, and what `check` prints is kept as a file."""
    commands = command_lines(os.environ)
    if not commands:
        print("no model to promote: none was published and registered", flush=True)
    failed = 0
    for command in commands:
        code = _check(command) if _input("COMMAND") == "check" else _run_command(command)
        failed = failed or code
        if code == INTERRUPTED:
            break
    _output({"failed": "true" if failed else "false"})
    sys.exit(failed)


def _check(command: list[str]) -> int:
    """Write the findings to a file; repogen also annotates them and adds them to the summary."""
    file = Path(tempfile.mkdtemp(prefix="repogen-", dir=os.environ.get("RUNNER_TEMP"))) / "findings.sarif"
    with file.open("wb") as stream:
        code = _run_command(command, stream)
    if file.stat().st_size:  # empty if repogen could not check anything
        _output({"sarif": str(file)})
    return code


def _run_command(command: list[str], stdout: IO[bytes] | None = None) -> int:
    """Run a command; when the job is canceled, forward its signal and wait until the command has cleaned up."""
    with subprocess.Popen(command, cwd=_directory(), stdout=stdout) as process:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: process.terminate())
        return process.wait()


def command_lines(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the command lines for the inputs.

    Args:
        environment: Contains the inputs as ``INPUT_…``.

    Raises:
        InputError: The command is unknown, or an input is invalid.
    """
    inputs = {name.removeprefix("INPUT_"): value for name, value in environment.items() if name.startswith("INPUT_")}
    command = inputs.get("COMMAND", "")
    if command not in COMMANDS:
        raise InputError(f"command {command!r} is not one of {', '.join(COMMANDS)}")
    try:
        extra = shlex.split(inputs.get("EXTRA_ARGS", ""))
    except ValueError as error:
        raise InputError(f"extra-args cannot be split: {error}") from error
    start = [*_REPOGEN, command]
    if command == "promote":
        options = [*_flag("--spec", inputs.get("SPEC", "")), *_tracking(inputs), *_server(inputs), *extra]
        return [
            [*start, *options, "--", *model]  # after `--`, no name is parsed as an option
            for model in _promotable(inputs.get("MODELS", ""))
        ]
    if command == "check":
        return [[*start, *_check_options(inputs), *extra, "--", *_check_paths(inputs)]]
    names = [part for name in _names(inputs.get("MODELS", "")) for part in _flag("--model", name)]
    return [[*start, *names, *_OPTIONS[command](inputs), *extra, *_OPERANDS[command](inputs)]]


def _check_options(inputs: dict[str, str]) -> list[str]:
    return ["--format=sarif", *_flag("--target", inputs.get("TARGET", ""))]


def _check_paths(inputs: dict[str, str]) -> list[str]:
    """Return the directories of the models, or the repository."""
    repository = inputs.get("REPOSITORY") or "model_repository"
    return [f"{repository}/{name}" for name in _names(inputs.get("MODELS", ""))] or [repository]


def _build_options(inputs: dict[str, str]) -> list[str]:
    server = ["--no-smoke"] if inputs.get("SMOKE") == "none" else _server(inputs)
    return [*_repository(inputs), *_flag("--target", inputs.get("TARGET", "")), *_tracking(inputs), *server]


def _repository(inputs: dict[str, str]) -> list[str]:
    return _flag("--repository", inputs.get("REPOSITORY", ""))


def _tracking(inputs: dict[str, str]) -> list[str]:
    uri = inputs.get("MLFLOW_TRACKING_URI", "").strip()
    try:
        server = urlsplit(uri).netloc
    except ValueError as error:  # its text may contain the password
        raise InputError("mlflow-tracking-uri is not a URI") from error
    if "@" in server:
        raise InputError(
            "mlflow-tracking-uri contains credentials; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in "
            "the job's environment instead, from secrets"
        )
    return _flag("--tracking-uri", uri)


def _server(inputs: dict[str, str]) -> list[str]:
    return [] if inputs.get("SMOKE") == "none" else _flag("--server", inputs.get("SMOKE", ""))


_OPTIONS: dict[str, Callable[[dict[str, str]], list[str]]] = {
    "build": _build_options,
    "smoke": _server,
    "sync": lambda inputs: [*_repository(inputs), *_tracking(inputs)],
}
_OPERANDS: dict[str, Callable[[dict[str, str]], list[str]]] = {
    "build": lambda inputs: ["--", inputs.get("SPEC") or "repogen.yaml"],
    "smoke": lambda inputs: ["--", inputs.get("REPOSITORY") or "model_repository"],
    "sync": lambda _inputs: [],
}


def _flag(name: str, value: str) -> list[str]:
    """Return an option with its value as one word, so that no value is parsed as an option."""
    return [f"{name}={value}"] if value else []


def _names(text: str) -> list[str]:
    """Return the names in a list of names, or in the JSON of this action's output `models`."""
    if text.lstrip().startswith("["):
        return [entry["name"] for entry in _entries(text)]
    return [name for name in _SEPARATORS.split(text) if name]


def _promotable(text: str) -> list[list[str]]:
    """Return the name, or name and version, of each model to promote; of an output, those published and registered."""
    if not text.lstrip().startswith("["):
        return [[name] for name in _names(text)]
    published = (entry for entry in _entries(text) if entry.get("status") == "published")
    return [[entry["name"], str(entry["registry_version"])] for entry in published if entry.get("registry_version")]


def _entries(text: str) -> list[dict[str, str]]:
    try:
        entries = json.loads(text)
        return [{**entry, "name": str(entry["name"])} for entry in entries]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"models is neither a list of names nor this action's output: {error!r}") from error


def _installs() -> bool:
    choice = _input("INSTALL")
    if choice not in {"auto", "always", "never"}:
        raise InputError(f"install {choice!r} is not one of auto, always, never")
    return choice == "always" or (choice == "auto" and not _is_installed())


def _is_installed() -> bool:
    """Return whether the interpreter has torch and exactly this version of repogen."""
    code = "import repogen, importlib.util as u; print(repogen.__version__, u.find_spec('torch') is not None)"
    python = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.anchor)
    return python.stdout.split() == [_version(), "True"]


def _version() -> str:
    text = (ROOT / "repogen" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    return match[1] if match else "0"


def _digest(*files: str) -> str:
    return hashlib.sha256(b"".join((ROOT / file).read_bytes() for file in files)).hexdigest()[:16]


def _torch_index() -> str:
    choice = _input("TORCH_INDEX")
    if choice == "auto":
        # PyPI's torch for Linux includes CUDA: gigabytes that GitHub-hosted runners cannot use.
        return CPU_INDEX if os.environ.get("RUNNER_ENVIRONMENT") == "github-hosted" else ""
    return "" if choice == "none" else choice


def _output(values: dict[str, str]) -> None:
    # A random delimiter: a value with a line break, such as a path from the environment, can't set another output.
    delimiter = f"end_{secrets.token_hex(16)}"
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as stream:
        stream.writelines(f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())


def _directory() -> str:
    directory = _input("WORKING_DIRECTORY") or "."
    if not Path(directory).is_dir():
        raise InputError(f"working-directory {directory!r} is not a directory")
    return directory


def _input(name: str) -> str:
    return os.environ.get(f"INPUT_{name}", "").strip()


def _print_error(title: str, error: Exception) -> None:
    message = str(error).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "# #[")
    print(f"::error title={title}::{message}", flush=True)


if __name__ == "__main__":
    try:
        {"plan": plan, "install": install, "run": run}[sys.argv[1]]()
    except InputError as error:
        _print_error("Invalid input of repogen", error)
        sys.exit(2)
    except (OSError, KeyError) as error:  # a file of the runner, or an argument list that is too long
        _print_error("The repogen action can't run", error)
        sys.exit(2)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
