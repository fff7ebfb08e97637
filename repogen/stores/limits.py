"""Limits on the responses of object stores: the libraries read most of them into memory, whatever their size.

Their timeouts apply to each read, so a response that arrives a byte at a time has no end. s3fs, gcsfs and adlfs send
their requests with aiohttp, in sessions that they create themselves. Therefore the default class of responses of all
sessions is replaced by one that has an effect only within ``repogen.responses.response_limits``.

What is not the content of an object is parsed: it has a smaller limit, and no document type. A document type can define
entities, with which a few megabytes become gigabytes in a parser, which nothing can interrupt.
"""

from __future__ import annotations

import asyncio
import re
import time
from functools import cache
from http import HTTPStatus
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any

from repogen.errors import PublishError
from repogen.responses import BYTES_PER_SECOND, MAX_BYTES, SECONDS, ResponseError, limits_of_block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import ClientResponse
    from aiohttp.connector import Connection

    from repogen.responses import Limits

_MAX_WHOLE_BYTES = 2**28
"""Of a body that a library reads as a whole, also within a download: a part of a file has at most 100 MiB."""
_MAX_DOCUMENT_BYTES = 8 * 2**20
"""Of a body that is parsed; a page of a listing has 1000 objects, whose keys have at most 1 KiB."""
_COMPLETE = frozenset({HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT})
_READABLE = re.compile(r'charset="?(utf-?8|us-ascii|iso-8859-1)"?(?=[;,\s]|$)', re.IGNORECASE)
"""Encodings in which the bytes of ``<!DOCTYPE`` are those of ASCII."""


@cache
def limit_responses() -> None:
    """Let responses within ``response_limits`` have limits, in every session of aiohttp that is created from now on."""
    from aiohttp import ClientResponse, ClientSession  # noqa: PLC0415 - an extra

    class LimitedResponse(ClientResponse):
        """A response whose body is read through ``_Body``."""

        async def start(self, connection: Connection) -> ClientResponse:
            """Read the status and the headers.

            Raises:
                ResponseError: They did not arrive in time.
            """
            limits = limits_of_block()
            if limits is None:
                return await super().start(connection)
            if limits.exceeded:
                raise limits.exceeded[0]
            began, sent = time.monotonic(), int(self.request_info.headers.get("Content-Length") or 0)
            deadline = _Deadline(limits, began, sent)
            await deadline.require(super().start(connection))
            self.content = _Body(self, deadline)  # type: ignore[assignment]
            return self

    defaults = ClientSession.__init__.__kwdefaults__ or {}
    defaults["response_class"] = LimitedResponse


def _rejected(limits: Limits, reason: str) -> ResponseError:
    """Return the error of a response, also for the requests that follow in the block.

    s3fs sends a request five times, whatever the error of the response is.
    """
    limits.exceeded.append(ResponseError(reason))
    return limits.exceeded[0]


class _Deadline:
    """The time that a request and its response may take: a second more for so many bytes of either."""

    def __init__(self, limits: Limits, began: float, transferred: int) -> None:
        self.limits, self._began, self.transferred = limits, began, transferred

    async def require(self, step: Any) -> Any:  # noqa: ANN401 - what the step returns
        """Wait for a step.

        Raises:
            ResponseError: The time is over.
        """
        allowed = self.limits.seconds + self.transferred / self.limits.bytes_per_second
        timeout = asyncio.timeout(allowed - (time.monotonic() - self._began))
        try:
            async with timeout:
                return await step
        except TimeoutError as error:
            if not timeout.expired():  # aiohttp's own
                raise
            raise _rejected(self.limits, f"the response was not complete after {allowed:.3g} s") from error


class _Body:
    """The stream of a body, with limits on its size and time.

    Args:
        response: That of aiohttp; what is not defined here is that of its stream.
        deadline: That of the response.
    """

    def __init__(self, response: ClientResponse, deadline: _Deadline) -> None:
        self._stream, self._deadline = response.content, deadline
        self._complete = response.status in _COMPLETE
        self._most = deadline.limits.size if self._complete else min(deadline.limits.size, MAX_BYTES)
        self._ranged = "Range" in response.request_info.headers
        self._types = response.headers.getall("Content-Type", [])
        self._document: BytesIO | None = None
        self._received = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self._stream, name)

    async def read(self, n: int = -1) -> bytes:
        """Return at most ``n`` bytes, or all if it is negative.

        Raises:
            ResponseError: The body is too large, did not arrive in time, or is one that a parser must not receive.
        """
        if self._document is None and self._is_parsed(n):
            self._document = BytesIO(self._safe(await self._whole(_MAX_DOCUMENT_BYTES)))
        if self._document is not None:
            return self._document.read(n)
        if n >= 0:
            return self._counted(await self._deadline.require(self._stream.read(n)), self._most)
        return await self._whole(_MAX_WHOLE_BYTES)

    def _is_parsed(self, n: int) -> bool:
        """Return whether the library parses the body: it reads the content of objects in blocks or by ranges."""
        return not self._complete or (n < 0 and not self._ranged and not self._received)

    def _safe(self, body: bytes) -> bytes:
        if not _has_document_type(body, self._types):
            return body
        if not self._complete:  # such as the HTML of a proxy: the status says what is wrong
            return b""
        raise _rejected(self._deadline.limits, "the response has a document type, or an encoding other than UTF-8")

    async def _whole(self, most: int) -> bytes:
        blocks = []
        while block := self._counted(await self._deadline.require(self._stream.readany()), min(self._most, most)):
            blocks.append(block)
        return b"".join(blocks)

    def _counted(self, block: bytes, most: int) -> bytes:
        self._received += len(block)
        self._deadline.transferred += len(block)
        if self._received > most:
            raise _rejected(self._deadline.limits, f"the response is larger than {most} bytes")
        return block


def _has_document_type(body: bytes, types: Iterable[str]) -> bool:
    """Return whether an XML document has a document type, or could have one in another encoding, such as UTF-16.

    Args:
        body: The document.
        types: The values of Content-Type. Azure's library decodes by the encoding that they name.
    """
    return b"<!DOCTYPE" in body or b"\0" in body or "charset" in _READABLE.sub("", ", ".join(types)).lower()


class TotalTime:
    """The time of several requests together: each of them can take its own limit, and a store chooses their number.

    Args:
        what: The requests, for messages.
        rate: There is one second more for so many objects.
    """

    def __init__(self, what: str, rate: float) -> None:
        """Begin now."""
        self._what, self._rate = what, rate
        self._began, self._objects, self._bytes = time.monotonic(), 0, 0
        self._lock = Lock()

    def require(self, objects: int = 0, received: int = 0) -> None:
        """Require that the time is not over.

        Args:
            objects: How many there are; the time is that for the largest number so far.
            received: Bytes since the last call.

        Raises:
            PublishError: It is over.
        """
        with self._lock:
            self._objects = max(self._objects, objects)
            self._bytes += received
            allowed = SECONDS + self._objects / self._rate + self._bytes / BYTES_PER_SECOND
        if time.monotonic() - self._began > allowed:
            raise PublishError(
                f"{self._what} was not complete after {allowed:.3g} s",
                "check the network and the endpoint, and run the command again",
                code="store.request",
            )
