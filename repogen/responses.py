"""Limits on what HTTP servers may do: the size and the time of responses, the time of uploads, and credentials.

The timeout of an HTTP client applies to each read from a connection, so a response that arrives a byte at a time has no
end. The clients that repogen uses (urllib, requests, and with it MLflow's and oras') are based on ``http.client``,
which creates each response with the ``response_class`` of a connection. The limits are there, so they also apply to
headers, and to bodies that a client only reads to discard them: those of redirects, and of errors before a retry.
It also applies to each write, so the body of a request is sent through a reader that limits the time of all of it.
"""

from __future__ import annotations

import math
import re
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from io import BufferedReader, BytesIO, RawIOBase
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from typing import IO

    from _typeshed import WriteableBuffer

Connection = TypeVar("Connection", bound=HTTPConnection)

MAX_BYTES = 32 * 2**20
"""Limit for a response whose size is not known before."""
_MAX_JSON_BYTES = 8 * 2**20
"""Limit for one that MLflow parses: 30 MiB of empty objects would need 7.6 GiB and two minutes."""
SECONDS = 60.0
INVALID_RESPONSE = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What code raises that reads a response: a field is missing, has another type or value, or is nested deeply."""
BYTES_PER_SECOND = 2**16
"""Half a megabit per second: downloads of large files are allowed on slow networks, but not indefinitely."""

_HEADER_BYTES = 2**20
_COMPLETE = frozenset({HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT})
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})")


class ResponseError(Exception):
    """A response is too large, or is compressed: it could unpack to any size; or a transfer takes too long.

    It is not an ``OSError``, after which clients would send the request again.
    """


@dataclass(frozen=True)
class Limits:
    """Limits of one response; see ``response_limits``.

    Attributes:
        exceeded: Why a response in the block was rejected: a library must not send the request again.
        received: Number of bytes that were received in the block, the only item of a list.
    """

    size: int
    seconds: float = SECONDS
    bytes_per_second: float = BYTES_PER_SECOND
    total: int = sys.maxsize
    received: list[int] = field(default_factory=lambda: [0], compare=False)
    exceeded: list[ResponseError] = field(default_factory=list, compare=False)


_NO_LIMITS = Limits(sys.maxsize, math.inf)
_LIMITS: ContextVar[Limits | None] = ContextVar("limits", default=None)


@contextmanager
def response_limits(
    size: int, seconds: float = SECONDS, bytes_per_second: float = BYTES_PER_SECOND, *, total: int = sys.maxsize
) -> Iterator[None]:
    """Limit the responses to the requests that this thread sends in the block.

    Args:
        size: Bytes of a body. A response whose status is neither 200 nor 206 has at most ``MAX_BYTES``.
        seconds: Time for a response, from the end of its request to its last byte.
        bytes_per_second: A response has one second more for so many bytes of it.
        total: Bytes of all responses, with their headers.
    """
    token = _LIMITS.set(Limits(size, seconds, bytes_per_second, total))
    try:
        yield
    finally:
        _LIMITS.reset(token)


def limits_of_block() -> Limits | None:
    """Return the limits of the responses to the requests that this thread, or this task of asyncio, sends now."""
    return _LIMITS.get()


def require_size(size: object) -> None:
    """Require that the size of a file, as a server names it, is within the limits of the block; for a file in parts.

    Raises:
        ResponseError: It is not, or it is not a size.
    """
    limits = _LIMITS.get() or _NO_LIMITS
    if not isinstance(size, int) or not 0 <= size <= limits.size:
        raise ResponseError(f"the server has a file of {size!r:.40} bytes, and at most {limits.size} are expected")


class LimitedResponse(HTTPResponse):
    """A response within the limits of the block that sent the request; without one, within the default limits.

    Every method that reads can raise ``ResponseError``.
    """

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of http.client
        """Read from a connection. The time starts now, when the request was sent."""
        super().__init__(sock, *args, **options)
        self._limits = _LIMITS.get() or Limits(MAX_BYTES)
        self._source = _Source(self.fp.detach(), self._limits)
        self.fp = _Reader(self._source)

    def begin(self) -> None:
        """Read the status and the headers."""
        super().begin()
        if self._limits is _NO_LIMITS:
            return
        if self.status not in _COMPLETE:
            self._source.most = min(self._source.most, MAX_BYTES)
        encodings = filter(None, self.headers.get_all("Content-Encoding", []))  # clients join the values of all headers
        encoding = ", ".join(encodings) or "identity"
        if encoding.lower() != "identity":
            raise ResponseError(f"the response is encoded as {encoding[:40]!r}, which was not requested")


class _Source(RawIOBase):
    """Reads a connection up to a number of bytes and a time.

    Attributes:
        most: Largest number of bytes of the body.
    """

    def __init__(self, raw: RawIOBase, limits: Limits) -> None:
        """Begin to count."""
        self._raw, self._limits = raw, limits
        self._start, self._received = time.monotonic(), 0
        self.most = limits.size

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        """Read what has arrived."""
        count: int | None = self._raw.readinto(buffer)
        self._received += count or 0
        self._limits.received[0] += count or 0
        if self._limits.received[0] > self._limits.total:
            raise self._error(f"the responses are larger than {self._limits.total} bytes in total")
        if self._received > self.most + _HEADER_BYTES:
            raise self._error(f"the response is larger than {self.most} bytes")
        allowed = self._limits.seconds + self._received / self._limits.bytes_per_second
        if time.monotonic() - self._start > allowed:
            raise self._error(f"the response was not complete after {allowed:.3g} s")
        return count

    def _error(self, message: str) -> ResponseError:
        self._raw.close()  # not every client closes a response after an error
        return ResponseError(message)

    def fileno(self) -> int:
        """Return the file descriptor of the connection."""
        return self._raw.fileno()

    def close(self) -> None:
        """Close the connection, unless it is used for the next request as well."""
        self._raw.close()
        super().close()


class _Reader(BufferedReader):
    """A buffered source, which does not allocate the memory that a header declares."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to a number of bytes; all if it is negative."""
        if size is not None and size > 0 and isinstance(self.raw, _Source):
            size = min(size, self.raw.most + _HEADER_BYTES + 1)
        return super().read(size)


class _TimedBody:
    """The body of a request, which a server must accept within the limits on time; a retry starts again.

    Args:
        body: A file, at the position of the first byte.
        limits: The limits of the response, whose time also applies to the request.
    """

    def __init__(self, body: IO[bytes], limits: Limits) -> None:
        """Begin to measure the time."""
        self._body, self._limits = body, limits
        self._start, self._sent = time.monotonic(), 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            ResponseError: The time is over.
        """
        allowed = self._limits.seconds + self._sent / self._limits.bytes_per_second
        if time.monotonic() - self._start > allowed:
            raise ResponseError(f"the request was not sent after {allowed:.3g} s")
        block = self._body.read(size)
        self._sent += len(block)
        return block

    def tell(self) -> int:
        """Return the position."""
        return self._body.tell()

    def seek(self, position: int) -> int:
        """Go to a position, from which the body is sent again."""
        self._start, self._sent = time.monotonic(), 0
        return self._body.seek(position)


def limited(connection: type[Connection]) -> type[Connection]:
    """Return a class of connections whose responses are ``LimitedResponse``."""
    if connection.response_class is LimitedResponse:
        return connection
    cached: Any = connection  # mypy does not know that classes are hashable
    return cast("type[Connection]", _limited(cached))


@cache
def _limited(connection: type[HTTPConnection]) -> Any:  # noqa: ANN401 - a subclass of the argument
    return type(connection.__name__, (connection,), {"response_class": LimitedResponse})


def limited_adapter(adapter: type[Any]) -> type[Any]:
    """Return a subclass of a transport adapter of requests, whose responses are ``LimitedResponse``.

    A response that is read into memory has at most ``MAX_BYTES``, or fewer if the block that sends the request says so.
    A stream has the limits of the block, or none without a block. The time is the read timeout of the request, if it
    has one; sending the request has the same limit.

    Args:
        adapter: ``requests.adapters.HTTPAdapter``, or a subclass.
    """

    class Limited(adapter):  # type: ignore[misc]  # not known before
        """Limits the responses."""

        def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - of requests
            """Return a pool of limited connections."""
            pool = super().get_connection_with_tls_context(*args, **options)
            pool.ConnectionCls = limited(pool.ConnectionCls)
            return pool

        def send(self, request: Any, stream: bool = False, timeout: Any = None, **options: Any) -> Any:  # noqa: ANN401, FBT001, FBT002 - the same
            """Send a request."""
            limits = _limits_of(request, timeout, stream=stream)
            body = request.body
            if limits is not _NO_LIMITS:
                request.headers["Accept-Encoding"] = "identity"
                request.body = _timed(body, limits)
            token = _LIMITS.set(limits)
            try:
                return super().send(request, stream=stream, timeout=timeout, **options)
            finally:
                request.body = body
                _LIMITS.reset(token)

    return Limited


def _timed(body: Any, limits: Limits) -> Any:  # noqa: ANN401 - of requests
    """Return the body of a request with a limit on the time; one without a length is left as it is."""
    if isinstance(body, bytes) and body:
        return _TimedBody(BytesIO(body), limits)
    return _TimedBody(body, limits) if hasattr(body, "read") and hasattr(body, "seek") else body


def without_netrc(session: Any) -> Any:  # noqa: ANN401 - of requests
    """Return a session of requests, which now never sends credentials of ``~/.netrc``.

    By default, they replace the ``Authorization`` header of a request, and are sent to every server that the file
    names, or to every server if it has a ``default`` entry, also after a redirect. Proxies and certificates of the
    environment, and credentials in a URL, are still used.

    Args:
        session: A ``requests.Session``.
    """
    session.auth = session.auth or _with_credentials_of_url
    session.rebuild_auth = partial(_remove_credentials_for_others, session)
    return session


def _with_credentials_of_url(request: Any) -> Any:  # noqa: ANN401 - of requests
    """Return a request with the credentials in its URL, as requests adds them."""
    from requests.auth import HTTPBasicAuth  # noqa: PLC0415 - an extra
    from requests.utils import get_auth_from_url  # noqa: PLC0415 - the same

    credentials = get_auth_from_url(request.url)
    return HTTPBasicAuth(*credentials)(request) if any(credentials) else request


def _remove_credentials_for_others(session: Any, request: Any, response: Any) -> None:  # noqa: ANN401 - of requests
    """Remove the credentials from a request that follows a redirect to another server."""
    if session.should_strip_auth(response.request.url, request.url):
        request.headers.pop("Authorization", None)


def _limits_of(request: Any, timeout: Any, *, stream: bool) -> Limits:  # noqa: ANN401 - of requests
    """Return the limits of the response to a request."""
    limits = _LIMITS.get() or _NO_LIMITS
    if stream and limits is _NO_LIMITS:
        return limits
    if not stream:  # also within a block: the limits of a download are not those of a token that it needs
        part = _RANGE.fullmatch(str(request.headers.get("Range", "")))
        most = _MAX_JSON_BYTES if part is None else max(MAX_BYTES, int(part[2]) - int(part[1]) + 1)
        limits = Limits(most) if limits is _NO_LIMITS else replace(limits, size=min(limits.size, most))
    seconds = timeout[-1] if isinstance(timeout, tuple) else timeout
    return replace(limits, seconds=seconds) if isinstance(seconds, int | float) else limits
