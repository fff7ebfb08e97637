"""Who may call a server's control API: loading models, trace and log settings, shared memory.

A client that loads a model can send the model's files, so it can run code as the server's user. Any local user can
connect to a port of 127.0.0.1, and read the command line of any process. So a server's secret cannot be one of its
options. Instead,

* a server in explicit mode, which repogen controls, listens on Unix sockets in a directory of this user only;
* a server with ports requires a random header that nobody knows, so its control API is closed; or the user's own. The
  supervisor passes either to the server without showing it in its command line.

docs/explanation/adr/0009-control-api.md has the reasons.
"""

from __future__ import annotations

import os
import re
import secrets

from repogen.artifacts.serving import ControlHeader
from repogen.errors import SmokeError, SpecError

VARIABLE = "REPOGEN_CONTROL_HEADER"
NOT_EXPLICIT = "smoke.not-explicit"
"""Code of the error about a server that does not load models on request."""
_APIS = "model-repository,logging,trace,shared-memory"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_VALUE = re.compile(r"[!-~]+", re.ASCII)
_HTTP_SINCE = (2, 40)


def parse_header(text: str) -> ControlHeader:
    """Return the header of ``KEY=VALUE``.

    Raises:
        SpecError: It is not a header; the message does not contain the text, which is a secret.
    """
    key, _, value = text.partition("=")
    if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
        raise SpecError(
            "the control header is not KEY=VALUE",
            "KEY has letters, digits, `_` and `-`, VALUE has printable ASCII characters without spaces; see "
            f"--control-header and the environment variable {VARIABLE}",
            code="server.control-header",
        )
    return ControlHeader(key, value)


def configured_header() -> ControlHeader | None:
    """Return the header that the user set in the environment; None if there is none.

    Raises:
        SpecError: It is not a header.
    """
    text = os.environ.get(VARIABLE)
    return parse_header(text) if text else None


def refusal(message: str, sent: ControlHeader | None) -> SmokeError | None:
    """Return the error for a message with which Triton refuses to load or unload a model; None for another reason.

    Args:
        message: The message of the server.
        sent: The header of the request; None if it had none.
    """
    if "is restricted" in message:
        if sent is not None and any(f"'{key}'" in message for key in sent.grpc):
            return SmokeError(
                f"the server's control API did not accept the value of the header: {message}",
                f"correct the value in {VARIABLE} or --control-header: it must be that of the server's option "
                "--grpc-restricted-protocol, or of the variable with which `repogen serve` was started",
                code="smoke.control-header",
            )
        return SmokeError(
            f"the server's control API requires a header: {message}",
            f"set {VARIABLE}=KEY=VALUE, or pass --control-header; if `repogen serve` started the server, start it with "
            "the same variable",
            code="smoke.control-header",
        )
    if "explicit model load" in message:
        return SmokeError(
            f"the server does not load models on request: {message}",
            "start it with --model-control-mode=explicit, or use --server embedded",
            code=NOT_EXPLICIT,
        )
    return None


def random_header() -> ControlHeader:
    """Return a header that no other server has."""
    return ControlHeader(f"repogen-{secrets.token_hex(8)}", secrets.token_hex(32))


def unsendable_header() -> ControlHeader:
    """Return a random header whose value clients do not send: it contains a line break.

    Triton's gRPC server accepts it from a client that was written for that, so it must not be visible either.
    """
    header = random_header()
    return ControlHeader(header.key, f"{header.value}\n{secrets.token_hex(32)}")


def is_sendable(header: ControlHeader) -> bool:
    """Return whether a client can send a header."""
    return _VALUE.fullmatch(header.value) is not None


def restrictions(header: ControlHeader, server_version: str) -> list[str]:
    """Return tritonserver's options that require ``header`` in requests to the control API.

    Args:
        header: The header.
        server_version: tritonserver's version; before 2.40 it cannot restrict HTTP.
    """
    major, minor = (int(part) for part in server_version.split(".")[:2])
    # the keys of gRPC's metadata are lowercase
    options = [f"--grpc-restricted-protocol={_APIS}:{header.key.lower()}={header.value}"]
    if (major, minor) >= _HTTP_SINCE:
        options.append(f"--http-restricted-api={_APIS}:{header.key}={header.value}")
    return options
