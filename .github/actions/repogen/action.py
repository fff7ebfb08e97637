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
from functools import cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[3]
"""The checkout of the action, which is a checkout of repogen."""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INTERRUPTED = 130
"""repogen's exit code after Ctrl-C, SIGTERM or SIGHUP."""
COMMANDS = ("build", "check", "smoke", "promote", "sync", "deploy", "bench", "diff")
MAX_COMMENT = 65_000
"""Characters of a comment; GitHub's limit is 65,536."""
_MAX_PAGES = 20
_SECONDS = 30
_NOT_REGISTERED = re.compile(r"repogen explain promotion\.no-such-(?:model|alias)")
_EXTRA = re.compile(r"[a-z][a-z0-9-]*")
_SEPARATORS = re.compile(r"[\s,]+")
_UNUSUAL = re.compile(r"[^A-Za-z0-9_.-]")
"""A job that runs the code of the models can write any name into its output, also commands for the runner."""
_PIP_PATHS = ("PIP_CONFIG_FILE", "PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL")
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
        pip = subprocess.run(
            [sys.executable, "-P", "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
        )
        if pip.returncode == 0:  # it fails if pip's cache is disabled
            outputs["pip-cache"] = pip.stdout.strip()
            outputs["pip-key"] = f"repogen-pip-{python}-{_digest('pyproject.toml', 'constraints.txt')}"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    outputs["triton-cache"] = str(Path(cache) / "repogen")
    outputs["triton-key"] = f"repogen-triton-{python}-{_version()}-{_digest('repogen/data/embedded.lock.json')}"
    _output(outputs)


def install() -> None:
    """Install the requirements of the models, and repogen unless it is installed."""
    pip = [sys.executable, "-P", "-m", "pip", "install", "--disable-pip-version-check"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    extras = ",".join(dict.fromkeys(("build", "track", *_extras())))
    if _installs():
        index = _torch_index()
        # In the checkout, pip would use a directory `https:/pypi.org/simple` instead of the index of that URL.
        run = partial(subprocess.run, check=True, cwd=ROOT.anchor, env=_pip_environment())
        run([*pip, *constraints, *(("--extra-index-url", index) if index else ()), "torch"])
        run([*pip, *constraints, f"{ROOT}[{extras}]"])
    if requirements := _input("REQUIREMENTS"):
        subprocess.run([*pip, "-r", requirements], check=True, cwd=_directory())


def _pip_environment() -> dict[str, str]:
    """Return the environment with absolute paths in the settings of pip."""
    return dict(os.environ) | {
        name: " ".join(map(_absolute, os.environ[name].split())) for name in _PIP_PATHS if name in os.environ
    }


def _absolute(source: str) -> str:
    """Return a path or URL of pip's settings with an absolute path; pip itself expands `~`."""
    return source if "://" in source or source.startswith(("~", "file:")) else str(Path(source).absolute())


def _extras() -> list[str]:
    """Return the extras of repogen to install besides build and track."""
    names = _names(_input("EXTRAS"))
    if invalid := [name for name in names if not _EXTRA.fullmatch(name)]:
        raise InputError(f"extras contains {invalid[0]!r}, which is not the name of an extra such as s3")
    return names


def run() -> None:
    """Run the command; `promote` and `diff` run once per model, and what `check` and `diff` print is kept as a file."""
    commands = command_lines(os.environ)
    if not commands:
        print(f"no model for {_input('COMMAND')}: none was published, or none was registered", flush=True)
    runners = {"check": _check, "diff": _diff}
    failed = 0
    for command in commands:
        code = runners.get(_input("COMMAND"), _run_command)(command)
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


def _diff(command: list[str]) -> int:
    """Append the differences of one model to the summary, and to a file for a comment on the pull request."""
    variables = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = _run_command(command, stdout, stderr, variables)
        stdout.seek(0)
        stderr.seek(0)
        text, error = (stream.read().decode(errors="replace") for stream in (stdout, stderr))
    if code and _NOT_REGISTERED.search(error):  # the first version of a model
        code, text = 0, f"### repogen diff: {_UNUSUAL.sub('-', command[-1])}: not registered before\n"
    if code:
        _print_error("repogen diff failed", error.strip())
        return code
    print(text, flush=True)
    file = _comment_file()
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        _append(summary, f"{text}\n")
    _output({"comment": str(file)})
    return 0


@cache
def _comment_file() -> Path:
    """Return the file for the comment of this step: one for all models, in a new directory."""
    return Path(tempfile.mkdtemp(prefix="repogen-", dir=os.environ.get("RUNNER_TEMP"))) / "comment.md"


def comment() -> None:
    """Write the differences as a comment on the pull request, or replace the comment of an earlier run.

    A comment that cannot be written is a warning: the summary of the job has the same text.
    """
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    number = (event.get("pull_request") or {}).get("number")
    if not isinstance(number, int):
        print("no comment: the event is not a pull request", flush=True)
        return
    marker = f"<!-- repogen diff: {_plain('GITHUB_WORKFLOW')}/{_plain('GITHUB_JOB')} -->"
    text = Path(_input("COMMENT_FILE")).read_text(encoding="utf-8")
    if len(text) > MAX_COMMENT:
        text = f"{text[:MAX_COMMENT]}\n\nTruncated; the summary of the run is complete.\n"
    pages = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    try:
        comments = f"{pages}/{number}/comments"
        url = _own_comment(comments, marker)
        body = {"body": f"{marker}\n{text}\n[Summary of the run]({_run_url()})\n"}
        answer = _request("PATCH" if url else "POST", url or comments, body)
        print(f"comment: {answer['html_url']}", flush=True)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        hint = "the job needs the permission pull-requests: write, which pull requests from forks do not have"
        print(f"::warning title=No comment on the pull request::{_escaped(str(error))}; {hint}", flush=True)


def _own_comment(comments: str, marker: str) -> str:
    """Return the URL of the comment that an earlier run wrote; empty if there is none."""
    for page in range(1, _MAX_PAGES + 1):
        entries = _request("GET", f"{comments}?per_page=100&page={page}")
        for entry in entries:
            if entry["user"]["type"] == "Bot" and entry["body"].startswith(marker):
                return str(entry["url"])
        if len(entries) < 100:  # noqa: PLR2004 - the size of a page
            break
    return ""


def _request(method: str, url: str, body: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - any JSON
    """Return the response of GitHub's API."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url!r} is not a URL of an API")
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Accept": "application/vnd.github+json"}, method=method)  # noqa: S310 - checked above
    request.add_unredirected_header("Authorization", f"Bearer {os.environ['GITHUB_TOKEN']}")
    with urlopen(request, timeout=_SECONDS) as response:  # noqa: S310 - the same
        return json.load(response)


def _run_url() -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run_id = (os.environ.get(name, "") for name in names)
    return f"{server}/{repository}/actions/runs/{run_id}"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", os.environ.get(name, ""))


def _run_command(
    command: list[str],
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
    environment: dict[str, str] | None = None,
) -> int:
    """Run a command; when the job is canceled, forward its signal and wait until the command has cleaned up."""
    with subprocess.Popen(command, cwd=_directory(), stdout=stdout, stderr=stderr, env=environment) as process:
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
        options = [*_flag("--spec", inputs.get("SPEC", "")), *_alias(inputs), *_tracking(inputs), *_server(inputs)]
        options += extra
        return [
            [*start, *options, "--", *model]  # after `--`, no name is parsed as an option
            for model in _promotable(inputs.get("MODELS", ""))
        ]
    if command == "diff":
        return _diff_lines(start, inputs, extra)
    if command in {"deploy", "bench"}:
        return [[*start, *_OPTIONS[command](inputs), *extra, "--", *_names(inputs.get("MODELS", ""))]]
    if command == "check":
        return [[*start, *_check_options(inputs), *extra, "--", *_check_paths(inputs)]]
    names = [part for name in _names(inputs.get("MODELS", "")) for part in _flag("--model", name)]
    return [[*start, *names, *_OPTIONS[command](inputs), *extra, *_OPERANDS[command](inputs)]]


def _diff_lines(start: list[str], inputs: dict[str, str], extra: list[str]) -> list[list[str]]:
    """Return one command line for each model; of an output, for each model that was published."""
    text = inputs.get("MODELS", "")
    names = [name for name, *_ in _published(text)] if _is_output(text) else _names(text)
    if not names and not _is_output(text):
        raise InputError("diff requires models: the names, or the output `models` of a build")
    options = [*_repository(inputs), *_existing_spec(inputs), *_tracking(inputs), "--markdown"]
    alias = inputs.get("ALIAS") or "champion"
    return [[*start, f"--against=models:/{name}@{alias}", *options, *extra, "--", name] for name in names]


def _existing_spec(inputs: dict[str, str]) -> list[str]:
    """Return the option for the spec of a command that does not need one."""
    spec = inputs.get("SPEC", "")
    exists = bool(spec) and Path(inputs.get("WORKING_DIRECTORY") or ".", spec).is_file()
    return _flag("--spec", spec) if exists else []


def _deploy_options(inputs: dict[str, str]) -> list[str]:
    servers = [part for address in _names(inputs.get("SERVERS", "")) for part in _flag("--server", address)]
    return [*servers, *_repository(inputs)]


def _bench_options(inputs: dict[str, str]) -> list[str]:
    return [*_flag("--spec", inputs.get("SPEC", "")), *_repository(inputs), *_server(inputs)]


def _alias(inputs: dict[str, str]) -> list[str]:
    return _flag("--alias", inputs.get("ALIAS", ""))


def _check_options(inputs: dict[str, str]) -> list[str]:
    return ["--format=sarif", *_existing_spec(inputs), *_flag("--target", inputs.get("TARGET", ""))]


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
    "sync": lambda inputs: [*_existing_spec(inputs), *_alias(inputs), *_repository(inputs), *_tracking(inputs)],
    "deploy": _deploy_options,
    "bench": _bench_options,
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
    if _is_output(text):
        return [entry["name"] for entry in _entries(text)]
    return [name for name in _SEPARATORS.split(text) if name]


def _promotable(text: str) -> list[list[str]]:
    """Return the name, or name and version, of each model to promote; of an output, those published and registered."""
    if _is_output(text):
        return [[name, version] for name, version in _published(text) if version]
    names = [[name] for name in _names(text)]
    if not names:
        raise InputError("promote requires models: the names, or the output `models` of a build")
    return names


def _published(text: str) -> list[tuple[str, str]]:
    """Return the name and registry version of each published model in an output; the version is empty without one."""
    published = (entry for entry in _entries(text) if entry.get("status") == "published")
    return [(entry["name"], str(entry.get("registry_version") or "")) for entry in published]


def _is_output(text: str) -> bool:
    return text.lstrip().startswith("[")


def _entries(text: str) -> list[dict[str, str]]:
    try:
        entries = json.loads(text)
        named = [{**entry, "name": str(entry["name"])} for entry in entries]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"models is neither a list of names nor this action's output: {error!r}") from error
    if unprintable := [entry["name"] for entry in named if not entry["name"].isprintable()]:
        raise InputError(f"models contains the name {unprintable[0]!r}, which is not printable")
    return named


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
    lines = "".join(f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())
    _append(os.environ["GITHUB_OUTPUT"], lines)


def _append(file: str, text: str) -> None:
    """Append text to a file of the runner, but not through a link, which another user could have made."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(file, flags, 0o664), "a", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        stream.write(text)


def _directory() -> str:
    directory = _input("WORKING_DIRECTORY") or "."
    if not Path(directory).is_dir():
        raise InputError(f"working-directory {directory!r} is not a directory")
    return directory


def _input(name: str) -> str:
    return os.environ.get(f"INPUT_{name}", "").strip()


def _print_error(title: str, error: Exception | str) -> None:
    print(f"::error title={title}::{_escaped(str(error))}", flush=True)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "# #[")


if __name__ == "__main__":
    try:
        {"plan": plan, "install": install, "run": run, "comment": comment}[sys.argv[1]]()
    except InputError as error:
        _print_error("Invalid input of repogen", error)
        sys.exit(2)
    except (OSError, KeyError) as error:  # a file of the runner, or an argument list that is too long
        _print_error("The repogen action can't run", error)
        sys.exit(2)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
