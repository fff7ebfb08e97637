"""A connection to a Triton server, with TLS and headers where it requires them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonclient.grpc import InferenceServerClient, InferenceServerClientPlugin

from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.errors import SpecError
from repogen.files.content import ContentError, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritonclient._request import Request

    from repogen.artifacts.serving import Credentials

MAX_MESSAGE_BYTES = 2**31 - 1
"""The limit of gRPC."""
MAX_RESPONSE_BYTES = 2**22
"""Limit of a response without large tensors."""
_MAX_PEM_BYTES = 2**20
_LOCAL = ("127.", "localhost:", "[::1]", "unix:")


def excerpt(text: str, limit: int = 2000) -> str:
    r"""Return a text of a server as one line of limited length: its own lines could look like those of repogen.

    >>> excerpt("a\nb"), excerpt("abcdef", 4)
    ('a b', 'abc…')
    """
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


class _Headers(InferenceServerClientPlugin):  # type: ignore[misc] # tritonclient is not typed
    """Adds headers to every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Store the headers."""
        self._headers = dict(headers)

    def __call__(self, request: Request) -> None:
        """Add them to a request."""
        request.headers = {**(request.headers or {}), **self._headers}


def open_client(
    address: str, credentials: Credentials = NO_CREDENTIALS, max_bytes: int = MAX_RESPONSE_BYTES
) -> InferenceServerClient:
    """Return a client, which connects with the first request.

    Args:
        address: ``HOST:PORT`` or ``unix:PATH`` of the gRPC service.
        credentials: How to connect.
        max_bytes: Of a response; decoded, many short entries take a hundred times as much memory.

    Raises:
        SpecError: A file of the credentials cannot be read.
    """
    files = {
        "root_certificates": credentials.root_certificates,
        "private_key": credentials.private_key,
        "certificate_chain": credentials.certificate_chain,
    }
    paths = {name: path for name, path in files.items() if path is not None}
    for path in paths.values():
        try:
            read_bytes(path, _MAX_PEM_BYTES)
        except (OSError, ContentError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise SpecError(
                f"{path} cannot be used for TLS: {reason}",
                "pass a PEM file to --tls-root, --tls-key and --tls-cert",
                code="server.tls",
            ) from error
    options = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", max_bytes),
        # an HTTP proxy must not be used for a server on this machine
        ("grpc.enable_http_proxy", 0 if address.startswith(_LOCAL) else 1),
    ]
    client = InferenceServerClient(
        address, ssl=credentials.tls, channel_args=options, **{name: str(path) for name, path in paths.items()}
    )
    if credentials.headers:
        client.register_plugin(_Headers(credentials.headers))
    return client
