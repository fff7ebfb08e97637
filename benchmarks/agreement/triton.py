"""The real Triton as a judge: loads one variant after the other, and survives the deaths of its servers."""

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

    Verdict = tuple[Outcome, str]
    """What came of a load, and the server's words."""

LIMIT = 40.0
"""Seconds that a load may take before it counts as hanging; an ordinary one takes two."""
_DEATH = 4.0
_LINES = 2000
_LONGEST = 2000
_POLL = "failed to poll from model repository"

# Ours refuses what it cannot execute. Here only loading is asked, so the core shall judge these models, too: what the
# core feeds is handed to the checks as if it were an input or output of the config, as NVIDIA's backend counts it.
_LENIENT = """

def _folded(config):
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
    for key, found in (("int32", "INT32"), ("fp32", "FP32"), ("bool", "BOOL")):
        if control.get(key + "_false_true"):
            data_type = "TYPE_" + found
    return {"name": tensor["name"], "data_type": data_type, "dims": [1]}


class TritonPythonModel(TritonPythonModel):
    def initialize(self, args):
        config = json.dumps(_folded(json.loads(args["model_config"])))
        super().initialize(dict(args, model_config=config))
"""


@dataclass(frozen=True)
class LenientTriton(EmbeddedTriton):
    """The embedded Triton with a backend that loads every sequence model.

    Attributes:
        backends: Where that backend is laid out.
    """

    backends: Path = field(kw_only=True)

    @classmethod
    def prepared(cls, backends: Path) -> LenientTriton:
        """Install the embedded Triton unless it is, and lay out the backend in ``backends``, which is new."""
        target = targets()[DEFAULT_RELEASE]
        stock = EmbeddedTriton(target, Silent())
        stock.install()
        shutil.copytree(stock._installation().backends, backends)  # noqa: SLF001 - there is no other way to its parts
        with (backends / "onnxruntime" / "model.py").open("a", encoding="utf-8") as file:
            file.write(_LENIENT)
        return cls(target, Silent(), backends=backends)

    def _installation(self) -> Installation:
        return replace(super()._installation(), backends=self.backends)


@dataclass
class Judge:
    """One server in explicit mode over a directory that variants are linked into; a new one after each death.

    Several threads may ask it at once.

    Attributes:
        triton: What is started.
        served: Its repository; new.
    """

    triton: LenientTriton
    served: Path
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stack: ExitStack = field(default_factory=ExitStack)
    _running: RunningEmbedded | None = None
    _loading: int = 0

    def loaded(self, repository: Path, model: str) -> Verdict | None:
        """Load ``model``, the only one of ``repository``, under a name that no other load has, and unload it.

        Returns:
            What came of it and the server's words; None when the server was lost while it loaded others, too.
        """
        running = self._entered()
        link = self.served / f"{model}-{next(self._numbers)}"
        link.symlink_to((repository / model).absolute())
        try:
            return self._loaded(running, link.name, model)
        finally:
            self._left(running)
            link.unlink()

    def close(self) -> None:
        """Stop the server, if one runs."""
        with self._lock:
            self._running = None
            self._stack.close()

    def _entered(self) -> RunningEmbedded:
        """Return the server, started if need be, with one more model that it loads."""
        with self._lock:
            if self._running is None:
                self._stack.close()
                self.served.mkdir(exist_ok=True)
                self._running = self._stack.enter_context(self.triton.running(self.served, ControlMode.EXPLICIT))
                self._loading = 0
            self._loading += 1
            return self._running

    def _left(self, running: RunningEmbedded) -> None:
        with self._lock:
            self._loading -= self._running is running

    def _loaded(self, running: RunningEmbedded, link: str, model: str) -> Verdict | None:
        url = f"/v2/repository/models/{quote(link)}"
        try:
            error = _asked(running, f"{url}/load")
            _asked(running, f"{url}/unload", {"parameters": {"unload_dependents": True}})
        except (OSError, http.client.HTTPException):
            return self._lost(running)
        if not error:
            return "accept", ""
        return "refuse", _tidied(_explained(error, running, link), self.served).replace(link, model)

    def _lost(self, running: RunningEmbedded) -> Verdict | None:
        """Give the server up; return whether it died or hangs, with its last words, if only one load can be why."""
        with self._lock:
            known = self._running is running
            alone = known and self._loading == 1
            self._running = None if known else self._running
        deadline = time.monotonic() + _DEATH
        while running.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not alone:
            return None
        if running.alive():
            return "hang", f"no answer in {LIMIT:.0f} s"
        return "crash", _last_words(running.log_tail())


def _asked(running: RunningEmbedded, url: str, body: object = None) -> str:
    """Return the error that the server answers with; empty when it does as it is told.

    By HTTP: through gRPC it loads one model after the other.
    """
    connection = UnixConnection(running.endpoint.http.removeprefix("unix:"), timeout=LIMIT)
    control = running.process.launch.control
    try:
        connection.request("POST", url, json.dumps(body or {}), {control.key: control.value})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        return "" if answer.status == http.HTTPStatus.OK else str(json.loads(text)["error"])
    finally:
        connection.close()


def _tidied(message: str, served: Path) -> str:
    """Return a message without what differs from run to run: our directories, and a traceback through them."""
    return message.partition("\n\nAt:\n")[0].replace(f"{served}/", "").strip("; \n")[:_LONGEST]


def _explained(error: str, running: RunningEmbedded, model: str) -> str:
    """Return why the server does not take a model: that its directory is wrong it tells its log alone."""
    return (error.endswith(_POLL) and _poll_error(running.log_tail(_LINES), model)) or error


def _poll_error(log: str, model: str) -> str:
    """Return why the server does not take a model's directory: the client is not told; the parser has its own line."""
    before, found, after = log.rpartition(f"Poll failed for model directory '{model}': ")
    parsed = before.rpartition("Error parsing text-format ")[2].partition("\n")[0] if "text proto" in after else ""
    return " ".join((after.partition("\n")[0].rstrip('"'), parsed)).strip() if found else ""


def _last_words(log: str) -> str:
    """Return what a dying server says, and in which of its libraries it died."""
    told = [line for line in log.splitlines() if line.startswith(("terminate called", "  what()", "Signal ("))]
    where = re.search(r"libtriton\w+", log.rpartition("Signal (")[2])
    return "\n".join([*told, *([f"in {where[0]}"] if where else [])])


class _Notes(list[str], Silent):
    """A Progress that stores the notes."""

    def note(self, model: str, text: str) -> None:
        self.append(f"{model}: {text}")


def started_whole(triton: LenientTriton, repository: Path) -> Verdict:
    """Start a server on the whole repository, as users do: it names each model that does not load."""
    notes = _Notes()
    try:
        with replace(triton, progress=notes).running(repository, ControlMode.NONE) as running:
            failures = [*notes, *load_failures(running.log_tail(_LINES)).values()]
            return ("refuse", _why(triton, repository) or failures[0]) if failures else ("accept", "")
    except ServerError as error:
        log = f"{error}\n{error.details}".replace(f"{repository}/", "")
        if "Signal (" in log:
            return "crash", _last_words(log)
        return "hang" if "was not live" in log else "refuse", _why(triton, repository) or log[-_LONGEST:]


def _why(triton: LenientTriton, repository: Path) -> str:
    """Return what a server in explicit mode says of each model: one that ends says little."""
    errors = []
    with triton.running(repository, ControlMode.EXPLICIT) as running:
        for path in sorted(path for path in repository.iterdir() if not path.is_file()):
            try:
                error = _asked(running, f"/v2/repository/models/{quote(path.name)}/load")
            except (OSError, http.client.HTTPException):
                break
            errors += [_tidied(_explained(error, running, path.name), repository)] if error else []
    return "\n".join(errors)
