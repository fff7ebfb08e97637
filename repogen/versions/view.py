"""``repogen view``: Netron's page for one published graph, on this machine only.

Netron's own server writes the path of the file into the page without escaping it, serves every file next to the graph,
and answers requests for any host; its page sends statistics to other hosts. Therefore only the assets of the package
`netron` are used here: the page is served with a policy that forbids other hosts, under a fixed name, and with nothing
but the files of the graph. Source: netron/server.py and netron/browser.js of netron 9.3.3.
"""

from __future__ import annotations

import importlib.util
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import SEEK_END, BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from repogen.artifacts.file_names import DATA_FILE, MODEL_FILE
from repogen.distribution import install_command
from repogen.errors import MissingExtraError, SpecError
from repogen.files import is_file, is_inside, open_inside, reason
from repogen.files.content import ContentError
from repogen.files.resolve import resolved
from repogen.repository.inventory import read_models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

HOST = "127.0.0.1"
_BLOCK = 2**20
_SECONDS = 30.0
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
}
_VERSION_META = re.compile(r'<meta name="version" content="[^"]*">')
_DATE_META = re.compile(r'<meta name="date" content="[^"]*">')
# Version 0.0.0: Netron then sends no statistics. Without a date, an old version does not ask for an update.
_META = (
    '<meta name="type" content="Python"><meta name="version" content="0.0.0">'
    f'<meta name="file" content="/data/{MODEL_FILE}"><meta name="identifier" content="{MODEL_FILE}">'
)
_POLICY = (
    "default-src 'self' data: blob:; script-src 'self'; style-src 'self' 'unsafe-inline'; frame-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Graph:
    """A published graph.

    Attributes:
        title: Model and version.
        directory: The version's directory, without symlinks.
        files: The files that Netron may read.
    """

    title: str
    directory: Path
    files: tuple[str, ...]


def graph_of(repository: Path, name: str, version: int | None) -> Graph:
    """Return the graph of a model.

    Args:
        repository: Any model repository.
        name: The model.
        version: A version; None for the newest one that is served, or else the newest one.

    Raises:
        SpecError: The repository, the model or the version does not exist, or the version has no graph.
        PublishError: A directory can't be read.
    """
    model = read_models(repository, (name,))[0]
    number = version if version is not None else model.newest_served
    if number is None and model.versions:
        number = model.versions[0].version
    record = None if number is None else model.find(number)
    if record is None:
        existing = ", ".join(str(each.version) for each in model.versions) or "none"
        missing = "no version" if number is None else f"no version {number}"
        raise SpecError(f"{name} has {missing}", f"its versions are: {existing}", code="view.no-version")
    directory = resolved(record.path)  # a link that replaces it from now on is not followed
    if not is_file(directory / MODEL_FILE) or not is_inside(directory / MODEL_FILE, directory):
        raise SpecError(
            f"version {number} of {name} has no {MODEL_FILE}",
            "Python code and ensembles have no graph: view the models that an ensemble uses",
            code="view.no-graph",
        )
    files = tuple(file for file in (MODEL_FILE, DATA_FILE) if is_file(directory / file))
    return Graph(f"{name} version {number}", directory, files)


class Viewer:
    """A server of one graph.

    Attributes:
        url: Its address.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        """Keep the server, which listens already."""
        self._server = server
        self.url = f"http://{HOST}:{server.server_port}/"

    def serve(self) -> None:
        """Answer requests until the process is interrupted, or another thread calls ``stop``."""
        self._server.serve_forever()

    def stop(self) -> None:
        """End ``serve``."""
        self._server.shutdown()


@contextmanager
def open_viewer(graph: Graph, port: int = 0) -> Iterator[Viewer]:
    """Listen on 127.0.0.1.

    Args:
        graph: The graph.
        port: The port; 0 for a free one.

    Raises:
        MissingExtraError: netron is not installed.
        SpecError: The port is in use.
    """
    spec = importlib.util.find_spec("netron")
    if spec is None or spec.origin is None:
        raise MissingExtraError("Netron is not installed", install_command("view"))
    assets = Path(os.path.realpath(Path(spec.origin).parent))
    try:
        server = _Server((HOST, port), partial(_Handler, graph=graph, assets=assets))
    except OSError as error:
        hint = "choose another port, or leave out --port for a free one"
        raise SpecError(f"port {port} can't be used: {reason(error)}", hint, code="view.port") from error
    try:
        yield Viewer(server)
    finally:
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that was closed; by default, a traceback is printed."""


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for Netron's assets, its page, and the files of one graph."""

    timeout = _SECONDS  # each connection has a thread, and any user of the machine can open one

    def __init__(self, *args: object, graph: Graph, assets: Path) -> None:
        self._graph = graph
        self._assets = assets
        super().__init__(*args)  # type: ignore[arg-type] # the server's arguments

    def do_GET(self) -> None:
        """Answer a request."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer a request without the content."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the same
        """Print nothing."""

    def _answer(self, *, with_body: bool) -> None:
        # A page of another host, whose name leads to this machine, must not read the graph.
        port = self.connection.getsockname()[1]
        if self.headers.get("Host", "") not in {f"{HOST}:{port}", f"localhost:{port}"}:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        path = unquote(urlsplit(self.path).path)
        is_page = path in {"/", "/index.html"}
        try:
            stream = BytesIO(self._page()) if is_page else self._open(path)
        except (OSError, ValueError, ContentError):  # ValueError: a name with a null byte
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with stream:
            size = stream.seek(0, SEEK_END)
            stream.seek(0)
            self._send_head(size, ".html" if is_page else PurePosixPath(path).suffix)
            while with_body and (block := stream.read(_BLOCK)):
                self.wfile.write(block)

    def _page(self) -> bytes:
        page = (self._assets / "index.html").read_text(encoding="utf-8")
        return _DATE_META.sub("", _VERSION_META.sub(_META, page, count=1), count=1).encode()

    def _open(self, path: str) -> BufferedReader:
        folder, _, name = path.rpartition("/")
        if folder == "/data" and name in self._graph.files:
            root = self._graph.directory
        elif not folder and Path(name).suffix in _TYPES:
            root = self._assets
        else:
            raise FileNotFoundError(path)
        return open_inside(root / name, root, root)

    def _send_head(self, size: int, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _TYPES.get(kind, "application/octet-stream"))
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        # Netron asks for consent to its statistics unless this cookie exists; there are none.
        self.send_header("Set-Cookie", "consent=1; SameSite=Strict")
        self.end_headers()
