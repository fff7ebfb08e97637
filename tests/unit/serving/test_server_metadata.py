"""Whatever listens on the port of a server, its response is read within limits."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from repogen.serving.process import server_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def responding(content: bytes) -> Iterator[int]:
    """Listen on a free port, which is returned, and respond with ``content``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"name": "t", "version": "2.51.0", "extensions": []}', {"name": "t", "version": "2.51.0"}),
        (b"[]", {}),
        (b"1", {}),
        (b"", {}),
        (b"\xff", {}),
        (b"[" * 100_000, {}),
        (b'{"name": ' + b"9" * 5000 + b"}", {}),
        (b'{"name": "' + b"x" * 2**21 + b'"}', {}),
    ],
)
def test_response_of_any_program(content: bytes, expected: dict[str, str]) -> None:
    """A response that is not the metadata of a server counts as none."""
    with responding(content) as port:
        assert server_metadata(f"127.0.0.1:{port}") == expected
