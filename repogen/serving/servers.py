"""Opens the Triton server that ``--server`` names: finds, checks, installs and starts it."""

from __future__ import annotations

import re
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from repogen.artifacts.serving import NO_CREDENTIALS, ControlMode
from repogen.errors import SpecError
from repogen.plugins import load_plugin, plugins
from repogen.serving.interface import AcceptsCredentials, ServerOptions, ServerPlugin, StartedElsewhere
from repogen.spec.problems import closest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from pydantic_core import ErrorDetails

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials, RunningTriton
    from repogen.serving.interface import TritonServer
    from repogen.targets import Target

_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})", re.ASCII
)
_MAX_PORT = 65_535


def is_address(text: str) -> bool:
    """Return whether ``text`` is ``HOST:PORT``, with an IPv6 host in brackets, or ``unix:PATH`` with an absolute path.

    >>> [is_address(text) for text in ("triton.internal:8001", "[::1]:8001", "triton", "triton:0", "triton:99999")]
    [True, True, False, False, False]
    >>> is_address("unix:/run/triton/grpc:8001")
    True
    """
    if text.startswith("unix:/"):
        return True
    parts = host_and_port(text)
    return parts is not None and parts[1] > 0


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return the parts of ``HOST:PORT``, of an IPv6 host without its brackets; None if it is not an address.

    >>> host_and_port("[::1]:0"), host_and_port("a:1,b:2")
    (('::1', 0), None)
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT:
        return None
    return match["ipv6"] or match["name"], int(match["port"])


def find_server(kind: str, target: Target, progress: Progress) -> TritonServer:
    """Return the server that ``--server`` names; installs and starts nothing.

    Args:
        kind: ``NAME`` or ``NAME:OPTIONS`` of a registered server, ``HOST:PORT``, or ``unix:PATH``.
        target: Release to serve.
        progress: Receives progress events of the installation.

    Raises:
        SpecError: No such server is registered, its options are invalid, or a plug-in failed to import.
    """
    name, _, argument = kind.partition(":")
    registered = plugins("repogen.servers")
    if name not in registered:
        if not is_address(kind):
            text = kind.rpartition("@")[2]  # before it may be a user and a password
            raise SpecError(
                f"--server {text!r} is not a server",
                f"registered servers: {', '.join(sorted(registered))}; or HOST:PORT or unix:PATH (gRPC) of a running "
                "Triton, for example localhost:8001",
                code="server.kind",
            )
        name, argument = "remote", kind
    plugin = load_plugin("repogen.servers", name)
    if not isinstance(plugin, ServerPlugin):
        raise SpecError(
            f"the entry point {name!r} of repogen.servers is not a ServerPlugin",
            f"see repogen.serving.interface; the entry point is {registered[name].value}",
            code="plugin.interface",
        )
    return plugin.create(_options(name, argument, plugin.options), target, progress)


def _options(name: str, argument: str, model: type[ServerOptions]) -> ServerOptions:
    """Return the validated options of ``--server NAME:ARGUMENT``.

    Raises:
        SpecError: They are invalid.
    """
    values: dict[str, str] = {}
    for index, item in enumerate(argument.split(",") if argument else ()):
        key, equals, value = item.partition("=")
        if not equals and index == 0 and model.first_without_key:
            key, value = next(iter(model.model_fields), item), item
        values[key] = value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        details = "; ".join(_problem(each, model) for each in problems)
        hint = f"options of {name}: {', '.join(model.model_fields) or 'none'}"
        if any(each["type"] == "missing" for each in problems):
            hint = f"for example --server {name}:{_example(model)}; {hint}"
        if is_address(f"{name}:{argument}"):
            hint += f"; for a Triton on the host {name!r} write remote:{name}:{argument}"
        raise SpecError(f"--server {name}: {details}", hint, code="server.options") from error


def _problem(detail: ErrorDetails, model: type[ServerOptions]) -> str:
    """Return what is wrong with an option, in the words of a spec's problems."""
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] == "missing":
        return f"{key} is missing"
    if detail["type"] == "extra_forbidden":
        match = closest(key, list(model.model_fields))
        return f"{key}: unknown option" + (f' (did you mean "{match}"?)' if match else "")
    return f"{key}: {detail['msg'].removeprefix('Value error, ')}"


def _example(model: type[ServerOptions]) -> str:
    """Return the required options with an example of each value."""
    pairs = []
    for index, (key, field) in enumerate(model.model_fields.items()):
        value = str((field.examples or [key.upper()])[0])
        if field.is_required():
            pairs.append(value if index == 0 and model.first_without_key else f"{key}={value}")
    return ",".join(pairs)


def prepare_server(
    kind: str, target: Target, progress: Progress, *, loads: bool = False, credentials: Credentials = NO_CREDENTIALS
) -> TritonServer:
    """Return the server that ``--server`` names, checked and installed, ready to start.

    Args:
        kind: As for ``find_server``.
        target: Release to serve.
        progress: Receives progress events.
        loads: Whether it must load models on request.
        credentials: TLS and headers, for a server that runs already; any other ignores the headers.

    Raises:
        SpecError: No such server, or TLS is for a server that repogen starts.
        ServerError: It cannot run here, or does not respond.
        SmokeError: It runs already, and does not load models on request.
    """
    server = find_server(kind, target, progress)
    if isinstance(server, AcceptsCredentials):
        server = server.with_credentials(credentials)
    elif credentials.tls:
        raise SpecError(
            f"--server {kind} does not use TLS",
            "--tls, --tls-root, --tls-key and --tls-cert are for a running server at HOST:PORT; omit them",
            code="server.options",
        )
    server.preflight()
    if loads and isinstance(server, StartedElsewhere):
        server.require_loads()
    server.install()
    return server


@contextmanager
def open_triton(
    server: TritonServer, repository: Path, mode: ControlMode, progress: Progress, *, strict: bool = False
) -> Iterator[RunningTriton]:
    """Run a server while the block runs.

    Args:
        server: From ``prepare_server``.
        repository: The model repository.
        mode: Triton's model control mode.
        progress: Receives progress events.
        strict: Disable Triton's auto-completion of config.pbtxt.

    Raises:
        ServerError: It cannot be started or reached.
    """
    progress.step("", "connect to Triton" if isinstance(server, StartedElsewhere) else "start Triton")
    with server.running(repository, mode, strict=strict) as triton:
        yield triton


class BackgroundTriton:
    """Starts a server in its own thread on entry, so that the start overlaps with export; stops it on exit.

    Args:
        server: From ``prepare_server``.
        repository: The model repository; its models are loaded on request.
    """

    def __init__(self, server: TritonServer, repository: Path) -> None:
        """Store the arguments; starts nothing."""
        self._server = server
        self._repository = repository
        self._running: Future[RunningTriton] = Future()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="triton")

    def _serve(self) -> None:
        """Enter and exit the server's context in one thread."""
        try:
            with self._server.running(self._repository, ControlMode.EXPLICIT, strict=True) as triton:
                self._running.set_result(triton)
                self._stop.wait()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            if not self._running.done():
                self._running.set_exception(error)

    def wait(self) -> RunningTriton:
        """Return the server once it is live.

        Raises:
            ServerError: It did not start.
        """
        return self._running.result()

    def stop(self) -> None:
        """Start to stop the server; does not wait."""
        self._stop.set()

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server and wait until it has exited."""
        self.stop()
        self._thread.join()
