"""A gRPC client that sends any bytes in a header, as a program of an attacker could; libraries refuse line breaks."""

from __future__ import annotations

import socket
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY, _CONTINUATION = 0, 1, 3, 4, 7, 9
_END_STREAM, _END_HEADERS = 1, 4
_MAX_FRAME = 2**14
_SEVEN_BITS = 0x7F


def has_response(address: str, method: str, key: str = "", value: bytes = b"") -> bool:
    """Call a method of Triton with an empty request; return whether the server responds with a message.

    Args:
        address: ``HOST:PORT``.
        method: Name of the method.
        key: An additional header; empty for none.
        value: Its value.
    """
    host, _, port = address.rpartition(":")
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/inference.GRPCInferenceService/" + method.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *([(key.encode(), value)] if key else []),
    ]
    block = b"".join(b"\0" + _text(name) + _text(content) for name, content in fields)
    parts = [block[start : start + _MAX_FRAME] for start in range(0, len(block), _MAX_FRAME)]
    frames = [_frame(_SETTINGS, 0, 0)]
    for kind, part in zip((_HEADERS, *[_CONTINUATION] * len(parts)), parts, strict=False):
        frames.append(_frame(kind, _END_HEADERS if part is parts[-1] else 0, 1, part))
    frames.append(_frame(_DATA, _END_STREAM, 1, bytes(5)))
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.settimeout(5)
        try:
            connection.sendall(_PREFACE + b"".join(frames))
            return _has_message(connection)
        except OSError:  # the server closed the connection
            return False


def _has_message(connection: socket.socket) -> bool:
    """Read frames; return whether one has a message, before the stream ends."""
    with connection.makefile("rb") as stream:
        while len(head := stream.read(9)) == 9:
            size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream.read(size)
            if kind == _DATA and size:
                return True
            if kind in {_RST_STREAM, _GOAWAY} or (kind == _HEADERS and flags & _END_STREAM):
                return False
    return False


def _frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def _text(content: bytes) -> bytes:
    """Encode a string of HPACK without compression."""
    size = len(content)
    if size < _SEVEN_BITS:
        return bytes([size]) + content
    rest, encoded = size - _SEVEN_BITS, bytearray([_SEVEN_BITS])
    while rest >= 2**7:
        encoded.append(rest % 2**7 + 2**7)
        rest //= 2**7
    return bytes([*encoded, rest]) + content
