"""Checks the webhooks of MLflow 3: their signature, their age, and that each is used once.

The signature is an HMAC with SHA-256 over the delivery ID, the time and the body, with a secret that only MLflow and
the receiver have. Source: mlflow.webhooks.delivery of MLflow 3.17.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from pydantic import BaseModel, TypeAdapter, ValidationError

from repogen.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIGNATURE, TIMESTAMP, DELIVERY_ID = "X-MLflow-Signature", "X-MLflow-Timestamp", "X-MLflow-Delivery-Id"
MAX_BODY = 2**16
"""Bytes of a webhook's body; an alias event has about 200."""
FRESH_SECONDS = 300
"""MLflow sends a webhook again for about a minute if it is not answered."""

SECRET_VARIABLE = "REPOGEN_WEBHOOK_SECRET"  # noqa: S105 - its name

_MIN_SECRET = 16
_VERSION = "v1"
_MAX_DELIVERIES = 10_000
_DELIVERY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)
_ENTITY = "model_version_alias"


def secret_of(environment: Mapping[str, str]) -> str:
    """Return the secret in REPOGEN_WEBHOOK_SECRET.

    Raises:
        SpecError: It is missing or short, or not text.
    """
    secret = environment.get(SECRET_VARIABLE, "")
    is_text = secret.encode(errors="replace").decode() == secret
    if len(secret) < _MIN_SECRET or not is_text:
        problem = f"has fewer than {_MIN_SECRET} characters" if secret else "is not set"
        problem = problem if is_text else "is not UTF-8"
        raise SpecError(
            f"--listen: {SECRET_VARIABLE} {problem}; without a secret that cannot be guessed, webhooks could come from "
            "anyone",
            f"create one with `openssl rand -hex 32`, set {SECRET_VARIABLE} to it, and create the webhook with it in "
            "MLflow",
            code="sync.webhook-secret",
        )
    return secret


class RejectedError(Exception):
    """A webhook that is not answered with success.

    Attributes:
        status: The response.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        """Keep the response, and why."""
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class AliasEvent:
    """An alias was set or deleted.

    Attributes:
        model: Registered model.
        alias: The alias.
    """

    model: str
    alias: str


class _Data(BaseModel):
    name: str = ""
    alias: str = ""


class _Payload(BaseModel):
    entity: str
    action: str
    data: _Data = _Data()


_PAYLOAD = TypeAdapter(_Payload)


class Verifier:
    """Checks webhooks that are signed with one secret; safe to use from several threads.

    Args:
        secret: The secret.
        clock: Returns the time in seconds since 1970.
    """

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """Begin without deliveries."""
        self._secret = secret.encode()
        self._clock = clock
        self._lock = threading.Lock()
        self._deliveries: dict[str, float] = {}

    def event(self, headers: Mapping[str, str], body: bytes) -> AliasEvent | None:
        """Return the event of a webhook; None for another kind of event, and for one that was received before.

        Args:
            headers: The headers of the request.
            body: Its body, of at most ``MAX_BODY`` bytes.

        Raises:
            RejectedError: It is not signed with the secret, is too old, or is not a webhook of MLflow.
        """
        delivery, timestamp = headers.get(DELIVERY_ID) or "", headers.get(TIMESTAMP) or ""
        if not _DELIVERY_ID.fullmatch(delivery) or not _TIMESTAMP.fullmatch(timestamp):
            raise RejectedError(HTTPStatus.BAD_REQUEST, "it does not have the headers of MLflow's webhooks")
        expected = _signature(self._secret, delivery, timestamp, body)
        if not hmac.compare_digest(expected, (headers.get(SIGNATURE) or "").encode("utf-8", "replace")):
            raise RejectedError(HTTPStatus.UNAUTHORIZED, "its signature is not valid")
        now = self._clock()
        if abs(now - int(timestamp)) > FRESH_SECONDS:
            raise RejectedError(
                HTTPStatus.UNAUTHORIZED,
                f"it was sent more than {FRESH_SECONDS} s ago, or the clocks of MLflow and this machine differ",
            )
        if self._is_repeated(delivery, now):
            return None
        try:
            payload = _PAYLOAD.validate_json(body)
        except ValidationError as error:
            raise RejectedError(HTTPStatus.BAD_REQUEST, "its body is not an event of MLflow") from error
        return AliasEvent(payload.data.name, payload.data.alias) if payload.entity == _ENTITY else None

    def _is_repeated(self, delivery: str, now: float) -> bool:
        """Return whether a delivery was received before; keep it for as long as its time is accepted.

        Raises:
            RejectedError: Too many deliveries were received to keep this one; MLflow sends it again.
        """
        with self._lock:
            for old in [old for old, received in self._deliveries.items() if now - received > 2 * FRESH_SECONDS]:
                del self._deliveries[old]
            if delivery in self._deliveries:
                return True
            if len(self._deliveries) >= _MAX_DELIVERIES:
                raise RejectedError(HTTPStatus.SERVICE_UNAVAILABLE, "too many webhooks were received")
            self._deliveries[delivery] = now
        return False


def _signature(secret: bytes, delivery: str, timestamp: str, body: bytes) -> bytes:
    digest = hmac.new(secret, f"{delivery}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"{_VERSION},".encode() + base64.b64encode(digest)
