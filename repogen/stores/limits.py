"""Limits on the responses of object stores: the libraries read most of them into memory, whatever their size.

Their timeouts apply to each read, so a response that arrives a byte at a time has no end. s3fs, gcsfs and adlfs send
their requests with aiohttp, in sessions that they create themselves. Therefore the default class of responses of all
sessions is replaced by one that has an effect only within ``repogen.responses.response_limits``.
"""

from __future__ import annotations

import asyncio
import time
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from repogen.responses import MAX_BYTES, ResponseError, limits_of_block

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from aiohttp.connector import Connection

    from repogen.responses import Limits

_MAX_WHOLE_BYTES = 2**28
"""Of a body that a library reads as a whole, also within a download: a part of a file has at most 100 MiB."""
_COMPLETE = frozenset({HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT})


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
            most = limits.size if self.status in _COMPLETE else min(limits.size, MAX_BYTES)
            self.content = _Body(self.content, deadline, most)  # type: ignore[assignment]
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
        stream: aiohttp's; what is not defined here is that of the stream.
        deadline: That of the response.
        most: Largest number of bytes.
    """

    def __init__(self, stream: Any, deadline: _Deadline, most: int) -> None:  # noqa: ANN401 - as above
        self._stream, self._deadline, self._most = stream, deadline, most
        self._received = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self._stream, name)

    async def read(self, n: int = -1) -> bytes:
        """Return at most ``n`` bytes, or all if it is negative.

        Raises:
            ResponseError: The body is too large, or did not arrive in time.
        """
        if n >= 0:
            return self._counted(await self._deadline.require(self._stream.read(n)), self._most)
        blocks = []
        while block := self._counted(
            await self._deadline.require(self._stream.readany()), min(self._most, _MAX_WHOLE_BYTES)
        ):
            blocks.append(block)
        return b"".join(blocks)

    def _counted(self, block: bytes, most: int) -> bytes:
        self._received += len(block)
        self._deadline.transferred += len(block)
        if self._received > most:
            raise _rejected(self._deadline.limits, f"the response is larger than {most} bytes")
        return block
