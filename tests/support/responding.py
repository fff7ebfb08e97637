"""An HTTP server that sends one response to all requests."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def responding(
    status: int,
    body: bytes,
    authorizations: list[str | None],
    location: str | None = None,
    bodies: list[bytes] | None = None,
) -> Iterator[str]:
    """Run an HTTP server that sends one response to all requests; yield its URL.

    Args:
        status: Status of the response.
        body: Its body.
        authorizations: Receives the ``Authorization`` headers of the requests.
        location: Its ``Location`` header.
        bodies: Receives the bodies of the requests.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            authorizations.append(self.headers["Authorization"])
            content = self.rfile.read(int(self.headers["Content-Length"] or 0))
            if bodies is not None:
                bodies.append(content)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
