"""The part of GitHub's API that comments on a pull request use, on a port of this machine."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class GitHubApi:
    """A running API.

    Attributes:
        url: Its URL.
        comments: Comments of the pull request, as the API returns them.
        requests: Method and authorization of each request.
        status: Status of every response.
    """

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200


@contextmanager
def github_api() -> Iterator[GitHubApi]:
    """Yield a running API without comments."""
    api = GitHubApi()

    class Handler(_Handler):
        state = api

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: GitHubApi

    def do_GET(self) -> None:
        """Return a page of comments."""
        page = int(self.path.rpartition("page=")[2])
        self._respond(self.state.comments[(page - 1) * 100 : page * 100])

    def do_POST(self) -> None:
        """Add a comment."""
        url = f"{self.state.url}/comment/{len(self.state.comments)}"
        self.state.comments.append({"url": url, "html_url": "page", "user": {"type": "Bot"}, **self._body()})
        self._respond(self.state.comments[-1])

    def do_PATCH(self) -> None:
        """Replace a comment."""
        comment = self.state.comments[int(self.path.rpartition("/")[2])]
        comment |= self._body()
        self._respond(comment)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _body(self) -> dict[str, Any]:
        return dict(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _respond(self, document: object) -> None:
        self.state.requests.append((self.command, str(self.headers["Authorization"])))
        data = json.dumps(document).encode()
        self.send_response(self.state.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
