"""Loads variants on Triton servers, and starts a new server after a crash."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import quote

from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import ControlMode
from repogen.errors import ServerError
from repogen.serving.embedded import EmbeddedTriton, RunningEmbedded
from repogen.serving.process import UnixConnection, load_failures
from repogen.targets import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agreement.values import Outcome
    from repogen.serving.install import Installation

    LoadResult = tuple[Outcome, str]
    """The outcome of a load, and the error of the server."""

LIMIT = 40.0
"""Seconds after which a load counts as hanging; most loads take two."""
_EXIT_SECONDS = 4.0
_LOG_LINES = 2000
_MESSAGE_LENGTH = 2000
_POLL_ERROR = "failed to poll from model repository"

# repogen's backend rejects sequence models that it cannot run. This benchmark only loads models, and needs the result
# of the core. So controls and states are passed to the checks as inputs and outputs, as in NVIDIA's backend.
_LENIENT = """

def _with_sequence_tensors(config):
    config = dict(config, input=list(config.get("input", [])), output=list(config.get("output", [])))
    sequence = config.pop("sequence_batching", {})
    for control in sequence.get("control_input", []):
        if control.get("control"):
            config["input"].append(_control(control))
    for state in sequence.get("state", []):
        for key in ("input", "output"):
            tensor = {"name": state[key + "_name"], "data_type": state["data_type"], "dims": state["dims"]}
            config[key].append(tensor)
    return config


def _control(tensor):
    control = tensor["control"][0]
    data_type = control.get("data_type", "TYPE_INVALID")
    for prefix in ("int32", "fp32", "bool"):
        if control.get(prefix + "_false_true"):
            data_type = "TYPE_" + prefix.upper()
    return {"name": tensor["name"], "data_type": data_type, "dims": [1]}


class TritonPythonModel(TritonPythonModel):
    def initialize(self, args):
        config = json.dumps(_with_sequence_tensors(json.loads(args["model_config"])))
        super().initialize(dict(args, model_config=config))
"""


@dataclass(frozen=True)
class LenientTriton(EmbeddedTriton):
    """The embedded Triton with a backend that loads every sequence model.

    Attributes:
        backends: The directory of its backends.
    """

    backends: Path = field(kw_only=True)

    @classmethod
    def prepared(cls, backends: Path) -> LenientTriton:
        """Install the embedded Triton if necessary, and write its backends to ``backends``, a new directory."""
        target = targets()[DEFAULT_RELEASE]
        stock = EmbeddedTriton(target, Silent())
        stock.install()
        shutil.copytree(stock._installation().backends, backends)  # noqa: SLF001 - there is no public way to get its parts
        with (backends / "onnxruntime" / "model.py").open("a", encoding="utf-8") as file:
            file.write(_LENIENT)
        return cls(target, Silent(), backends=backends)

    def _installation(self) -> Installation:
        return replace(super()._installation(), backends=self.backends)


@dataclass
class VariantServer:
    """A server in explicit mode whose repository has links to variants; started again after each crash.

    Several threads may use it at the same time.

    Attributes:
        triton: The server to start.
        served: The directory of its repository, which does not exist yet.
    """

    triton: LenientTriton
    served: Path
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stack: ExitStack = field(default_factory=ExitStack)
    _running: RunningEmbedded | None = None
    _loading: int = 0

    def load(self, repository: Path, model: str) -> LoadResult | None:
        """Load ``model``, the only model of ``repository``, under a unique name, and unload it.

        Returns:
            The result; None if the server crashed or hung while it was also loading other models.
        """
        running = self._acquire()
        link = self.served / f"{model}-{next(self._numbers)}"
        link.symlink_to((repository / model).absolute())
        try:
            return self._load(running, link.name, model)
        finally:
            self._release(running)
            link.unlink()

    def close(self) -> None:
        """Stop the server if it is running."""
        with self._lock:
            self._running = None
            self._stack.close()

    def _acquire(self) -> RunningEmbedded:
        """Return the server, started if necessary, and count one more model that it loads."""
        with self._lock:
            if self._running is None:
                self._stack.close()
                self.served.mkdir(exist_ok=True)
                self._running = self._stack.enter_context(self.triton.running(self.served, ControlMode.EXPLICIT))
                self._loading = 0
            self._loading += 1
            return self._running

    def _release(self, running: RunningEmbedded) -> None:
        with self._lock:
            self._loading -= self._running is running

    def _load(self, running: RunningEmbedded, link: str, model: str) -> LoadResult | None:
        url = f"/v2/repository/models/{quote(link)}"
        try:
            error = _post(running, f"{url}/load")
            _post(running, f"{url}/unload", {"parameters": {"unload_dependents": True}})
        except (OSError, http.client.HTTPException):
            return self._stop(running)
        if not error:
            return "accept", ""
        return "reject", _normalized(_with_poll_error(error, running, link), self.served).replace(link, model)

    def _stop(self, running: RunningEmbedded) -> LoadResult | None:
        """Stop using the server; return whether it crashed or hangs, if only one load can be the cause."""
        with self._lock:
            is_current = self._running is running
            is_only_load = is_current and self._loading == 1
            self._running = None if is_current else self._running
        deadline = time.monotonic() + _EXIT_SECONDS
        while running.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not is_only_load:
            return None
        if running.alive():
            return "hang", f"no response within {LIMIT:.0f} s"
        return "crash", _crash_report(running.log_tail())


def _post(running: RunningEmbedded, url: str, body: object = None) -> str:
    """Return the error of the server's response; empty if the request succeeded.

    Over HTTP, because over gRPC the server loads models one after another.
    """
    connection = UnixConnection(running.endpoint.http.removeprefix("unix:"), timeout=LIMIT)
    control = running.process.launch.control
    try:
        connection.request("POST", url, json.dumps(body or {}), {control.key: control.value})
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        return "" if response.status == http.HTTPStatus.OK else str(json.loads(text)["error"])
    finally:
        connection.close()


def _normalized(message: str, served: Path) -> str:
    """Return a message without the parts that differ between runs: temporary directories and tracebacks."""
    return message.partition("\n\nAt:\n")[0].replace(f"{served}/", "").strip("; \n")[:_MESSAGE_LENGTH]


def _with_poll_error(error: str, running: RunningEmbedded, model: str) -> str:
    """Return the reason why a model was not loaded; for an invalid directory, only the log contains it."""
    return (error.endswith(_POLL_ERROR) and _poll_error(running.log_tail(_LOG_LINES), model)) or error


def _poll_error(log: str, model: str) -> str:
    """Return the error about a model's directory from the log, with the line of the parser."""
    before, separator, after = log.rpartition(f"Poll failed for model directory '{model}': ")
    parsed = before.rpartition("Error parsing text-format ")[2].partition("\n")[0] if "text proto" in after else ""
    return " ".join((after.partition("\n")[0].rstrip('"'), parsed)).strip() if separator else ""


def _crash_report(log: str) -> str:
    """Return the log lines about a crash, and the library in which the server crashed."""
    lines = [line for line in log.splitlines() if line.startswith(("terminate called", "  what()", "Signal ("))]
    library = re.search(r"libtriton\w+", log.rpartition("Signal (")[2])
    return "\n".join([*lines, *([f"in {library[0]}"] if library else [])])


class _Notes(list[str], Silent):
    """A Progress that stores the notes."""

    def note(self, model: str, text: str) -> None:
        self.append(f"{model}: {text}")


def start_repository(triton: LenientTriton, repository: Path) -> LoadResult:
    """Start a server on the whole repository, as users do; it reports each model that does not load."""
    notes = _Notes()
    try:
        with replace(triton, progress=notes).running(repository, ControlMode.NONE) as running:
            failures = [*notes, *load_failures(running.log_tail(_LOG_LINES)).values()]
            return ("reject", _load_errors(triton, repository) or failures[0]) if failures else ("accept", "")
    except ServerError as error:
        log = f"{error}\n{error.details}".replace(f"{repository}/", "")
        if "Signal (" in log:
            return "crash", _crash_report(log)
        return "hang" if "was not live" in log else "reject", _load_errors(triton, repository) or log[-_MESSAGE_LENGTH:]


def _load_errors(triton: LenientTriton, repository: Path) -> str:
    """Return the errors of a server in explicit mode, which are more detailed than those of a server that exits."""
    errors = []
    with triton.running(repository, ControlMode.EXPLICIT) as running:
        for path in sorted(path for path in repository.iterdir() if not path.is_file()):
            try:
                error = _post(running, f"/v2/repository/models/{quote(path.name)}/load")
            except (OSError, http.client.HTTPException):
                break
            errors += [_normalized(_with_poll_error(error, running, path.name), repository)] if error else []
    return "\n".join(errors)
