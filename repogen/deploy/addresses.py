"""The servers of a deploy: the values of ``--server``, and the lines of ``--servers-file``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repogen.errors import SpecError
from repogen.files.content import ContentError, read_text
from repogen.serving.servers import is_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MAX_BYTES = 2**20
_MAX_SERVERS = 1000
_CODE = "deploy.servers"
_FORM = "write HOST:PORT or unix:PATH of a server's gRPC service, for example triton-0:8001"


def server_addresses(servers: Iterable[str], file: Path | None) -> tuple[str, ...]:
    """Return the addresses of the servers, those of the file last.

    Args:
        servers: Addresses.
        file: One address per line; empty lines and text after ``#`` are ignored. None for no file.

    Raises:
        SpecError: There is no address or more than 1000, one is not an address or is given twice, or the file cannot be
            read.
    """
    named = [("--server", server) for server in servers]
    named += [] if file is None else list(_lines(file))
    first_mentions: dict[str, str] = {}
    for where, address in named:
        if not is_address(address):
            text = address.rpartition("@")[2]  # before it may be a user and a password
            raise SpecError(f"{where}: {text!r} is not the address of a server", _FORM, where=where, code=_CODE)
        if address in first_mentions:
            raise SpecError(
                f"{where}: {address} is given twice, first by {first_mentions[address]}",
                "remove one",
                where=where,
                code=_CODE,
            )
        first_mentions[address] = where
    if not first_mentions:
        raise SpecError("no server to deploy to", "pass --server HOST:PORT, or --servers-file FILE", code=_CODE)
    if len(first_mentions) > _MAX_SERVERS:
        raise SpecError(
            f"{len(first_mentions)} servers; the limit is {_MAX_SERVERS}",
            "deploy to fewer servers at a time",
            code=_CODE,
        )
    return tuple(first_mentions)


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield ``FILE:LINE`` and address of each line that has one."""
    try:
        text = read_text(file, _MAX_BYTES)
    except (OSError, ContentError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SpecError(
            f"{file} cannot be read: {reason}", "pass a text file with one address per line", code=_CODE
        ) from error
    for number, line in enumerate(text.split("\n"), 1):
        address = line.partition("#")[0].strip()
        if address:
            yield f"{file}:{number}", address
