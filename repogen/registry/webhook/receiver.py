"""An HTTP server for the webhooks of MLflow, with limits on size, time and concurrency."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from repogen.errors import SpecError
from repogen.registry.webhook.signature import MAX_BODY, RejectedError
from repogen.serving.servers import host_and_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.registry.webhook.signature import Verifier

_MAX_REQUESTS = 16
_REQUEST_SECONDS = 15.0


class Receiver:
    """Counts the events of an alias that arrive.

    Attributes:
        address: ``HOST:PORT`` that the server listens on.
    """

    def __init__(self, verifier: Verifier, alias: str) -> None:
        """Begin without events."""
        self.address = ""
        self._verifier = verifier
        self._alias = alias
        self._lock = threading.Lock()
        self._moved = threading.Event()
        self._rejections: Counter[str] = Counter()

    def wait(self, seconds: float) -> bool:
        """Wait until the alias is moved, or until the time is over; return whether it was moved since the last call."""
        moved = self._moved.wait(seconds)
        self._moved.clear()
        return moved

    def rejections(self) -> dict[str, int]:
        """Return why requests were rejected since the last call, with their number."""
        with self._lock:
            rejections, self._rejections = dict(self._rejections), Counter()
        return rejections

    def receive(self, headers: Any, body: bytes) -> None:  # noqa: ANN401 - http.server's headers
        """Check a webhook, and report the event if it is about the alias.

        Raises:
            RejectedError: It is not a valid webhook.
        """
        event = self._verifier.event(headers, body)
        if event is not None and event.alias == self._alias:
            self._moved.set()

    def count_rejection(self, reason: str) -> None:
        """Keep the reason of a rejection for ``rejections``; the reasons are few."""
        with self._lock:
            self._rejections[reason] += 1


@contextmanager
def receiving(address: str, verifier: Verifier, alias: str) -> Iterator[Receiver]:
    """Listen for webhooks while the block runs.

    Args:
        address: ``HOST:PORT``; port 0 selects a free one.
        verifier: Checks them.
        alias: The alias whose events are reported.

    Raises:
        SpecError: The address is not valid, or it is not possible to listen on it.
    """
    host, port = parse_address(address)
    receiver = Receiver(verifier, alias)
    try:
        server = _Server((host, port), receiver)
    except OSError as error:
        raise SpecError(
            f"--listen: cannot listen on {address}: {error.strerror or error}",
            "choose an address of this machine and a free port",
            code="sync.listen",
        ) from error
    shown_host = f"[{host}]" if ":" in host else host
    receiver.address = f"{shown_host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="webhooks", daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; the host of an IPv6 address is in brackets.

    >>> parse_address("0.0.0.0:8123")
    ('0.0.0.0', 8123)

    Raises:
        SpecError: It is not an address.
    """
    parts = host_and_port(address)
    if parts is None:
        raise SpecError(
            f"--listen: {address!r:.200} is not one address",
            "write HOST:PORT, such as 0.0.0.0:8123 or [::]:8123",
            code="sync.listen",
        )
    return parts


class _Server(ThreadingHTTPServer):
    """Answers a limited number of requests at a time, each within a limited time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], receiver: Receiver) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.receiver = receiver
        self._slots = threading.BoundedSemaphore(_MAX_REQUESTS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - of the base class
        """Close the connection if too many are open: MLflow sends the webhook again."""
        if not self._slots.acquire(blocking=False):
            self.receiver.count_rejection("too many requests at a time")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - of the base class
        """Answer a request, or close the connection when its time is over."""
        timer = threading.Timer(_REQUEST_SECONDS, _close, (request,))
        timer.daemon = True
        try:
            timer.start()  # fails if no thread is left
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - of the base class
        """Ignore a connection that was closed."""
        del request, client_address
        self.receiver.count_rejection("the connection was closed")


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; responses contain nothing of the request."""

    server: _Server
    server_version = "repogen"
    sys_version = ""
    timeout = _REQUEST_SECONDS

    def do_POST(self) -> None:
        """Receive a webhook."""
        try:
            self.server.receiver.receive(self.headers, self._body())
        except RejectedError as error:
            self.server.receiver.count_rejection(str(error))
            self._respond(error.status)
        else:
            self._respond(HTTPStatus.OK)

    def do_GET(self) -> None:
        """Answer a health check."""
        self._respond(HTTPStatus.OK if self.path == "/health" else HTTPStatus.NOT_FOUND)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not valid HTTP, without repeating it."""
        del message, explain
        self.server.receiver.count_rejection("it is not a valid request")
        self._respond(HTTPStatus(code))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing: the request may contain anything."""

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length") or ""
        if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
            raise RejectedError(HTTPStatus.LENGTH_REQUIRED, "it does not have a length")
        if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
            raise RejectedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"its body has more than {MAX_BODY} bytes")
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise RejectedError(HTTPStatus.BAD_REQUEST, "its body is incomplete")
        return body

    def _respond(self, status: HTTPStatus) -> None:
        body = f"{status.phrase}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _close(request: Any) -> None:  # noqa: ANN401 - a socket
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
