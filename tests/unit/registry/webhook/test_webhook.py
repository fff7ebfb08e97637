"""Webhooks of MLflow: only fresh ones with a valid signature cause a sync, once each, within limits."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import time
import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from mlflow.webhooks.delivery import _generate_hmac_signature

from repogen.api import registry as api
from repogen.artifacts.sync import SyncAction, SyncedVersion, SyncReport
from repogen.cli.group import main
from repogen.errors import SpecError, TrackingError
from repogen.registry.webhook import receiver as receiver_module
from repogen.registry.webhook import signature
from repogen.registry.webhook.receiver import Receiver, parse_address, receiving
from repogen.registry.webhook.signature import AliasEvent, RejectedError, Verifier, secret_of
from repogen.reporting.registry_text import followed_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "a secret of more than sixteen characters"  # noqa: S105 - for tests
NOW = 1_800_000_000
DATA = {"name": "m", "alias": "champion", "version": "2"}
EVENT = {"entity": "model_version_alias", "action": "created", "timestamp": "…", "data": DATA}


def signed(document: object = EVENT, *, at: float = NOW, secret: str = SECRET) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a webhook as MLflow itself signs it."""
    body, delivery, timestamp = json.dumps(document), str(uuid.uuid4()), str(int(at))
    headers = {
        signature.DELIVERY_ID: delivery,
        signature.TIMESTAMP: timestamp,
        signature.SIGNATURE: _generate_hmac_signature(secret, delivery, timestamp, body),
    }
    return headers, body.encode()


def verifier() -> Verifier:
    """Return a verifier at a fixed time."""
    return Verifier(SECRET, lambda: NOW)


def test_event_of_an_alias() -> None:
    """Moves and deletions; other events are valid and not about an alias."""
    check = verifier()
    assert check.event(*signed()) == AliasEvent("m", "champion")
    deleted = {**EVENT, "action": "deleted", "data": {"name": "m", "alias": "champion"}}
    assert check.event(*signed(deleted)) == AliasEvent("m", "champion")
    other = {"entity": "model_version", "action": "created", "data": {"name": "m", "version": "1", "tags": {}}}
    assert check.event(*signed(other)) is None


def test_webhook_counts_once() -> None:
    """A repetition, by MLflow or by an attacker, is answered with success, and is not an event."""
    check = verifier()
    headers, body = signed()
    assert check.event(headers, body) is not None
    assert check.event(headers, body) is None


def rejection(headers: dict[str, str], body: bytes, check: Verifier | None = None) -> tuple[int, str]:
    """Return status and reason of a rejection."""
    with pytest.raises(RejectedError) as caught:
        (check or verifier()).event(headers, body)
    assert SECRET not in str(caught.value)
    return int(caught.value.status), str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (signature.SIGNATURE, ""),
        (signature.SIGNATURE, "v1,AAAA"),
        (signature.SIGNATURE, "v1,é\udc80"),
        (signature.DELIVERY_ID, "other"),
        (signature.TIMESTAMP, str(NOW + 1)),
    ],
)
def test_every_signed_part_counts(name: str, value: str) -> None:
    """A changed header, and below a changed body or another secret, is a signature that is not valid."""
    headers, body = signed()
    assert rejection(headers | {name: value}, body) == (401, "its signature is not valid")


def test_changed_body_or_other_secret() -> None:
    """See above; the version of the signature counts as well."""
    headers, body = signed()
    assert rejection(headers, body + b" ")[0] == 401
    assert rejection(*signed(secret=SECRET.upper()))[0] == 401
    headers[signature.SIGNATURE] = headers[signature.SIGNATURE].replace("v1", "v2")
    assert rejection(headers, body)[0] == 401


@pytest.mark.parametrize("seconds", [-301, 301])
def test_old_webhook(seconds: int) -> None:
    """Also one of the future: its delivery could be repeated when it is forgotten."""
    assert rejection(*signed(at=NOW + seconds))[0] == 401
    assert verifier().event(*signed(at=NOW + seconds * 300 // 301)) is not None


@pytest.mark.parametrize(
    ("name", "value"), [(signature.DELIVERY_ID, "a.b"), (signature.DELIVERY_ID, "x" * 65), (signature.TIMESTAMP, "1e9"),
                        (signature.TIMESTAMP, "9" * 5000), (signature.TIMESTAMP, "\u0663"), (signature.DELIVERY_ID, "")]
)  # fmt: skip
def test_headers_of_another_kind(name: str, value: str) -> None:
    """They are rejected before anything is computed from them."""
    headers, body = signed()
    assert rejection(headers | {name: value}, body)[0] == 400


@pytest.mark.parametrize("document", [[], {}, {"entity": 1}, {"entity": "model_version_alias", "data": []}])
def test_body_of_another_kind(document: object) -> None:
    """It is signed, and not an event."""
    assert rejection(*signed(document))[0] == 400


def test_deliveries_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """After their time is no longer accepted; until then, their number is limited."""
    monkeypatch.setattr(signature, "_MAX_DELIVERIES", 2)
    now = [float(NOW)]
    check = Verifier(SECRET, lambda: now[0])
    for _ in range(2):
        check.event(*signed())
    assert rejection(*signed(), check)[0] == 503
    now[0] += 2 * signature.FRESH_SECONDS + 1
    assert check.event(*signed(at=now[0])) is not None


@pytest.mark.parametrize("secret", [None, "", "short", "not short, and not UTF-8: \udcff"])
def test_secret_is_required(secret: str | None) -> None:
    """The message does not contain it."""
    with pytest.raises(SpecError) as caught:
        secret_of({} if secret is None else {"REPOGEN_WEBHOOK_SECRET": secret})
    assert caught.value.code == "sync.webhook-secret"
    assert "short" not in caught.value.message


@pytest.mark.parametrize(
    "address",
    [
        *("", "8000", "host:", ":1", "host:x", "host:65536", "host:99999", "host:" + "9" * 5000, "host:" + "0" * 5000),
        *(
            "a:1,b:2",
            "127.0.0.1:1,127.0.0.1:2",
            "[::1",
            "[::1]",
            "[::1:80",
            "[]:80",
            "::1:80",
            "host:\u0661",
            "host:+8",
        ),
        *("host:0000009999999", " host:80", "a b:80", "\udcff:80", "\0:80"),
    ],
)
def test_address_that_is_not_valid(address: str) -> None:
    """Exit code 2."""
    with pytest.raises(SpecError, match="is not one address") as caught:
        parse_address(address)
    assert caught.value.code == "sync.listen"


@pytest.fixture
def listening() -> Iterator[Receiver]:
    """Return a receiver on a free port."""
    with receiving("127.0.0.1:0", Verifier(SECRET), "champion") as receiver:
        yield receiver


def post(receiver: Receiver, headers: dict[str, str], body: bytes, method: str = "POST", path: str = "/") -> Any:
    """Return status and text of a response."""
    with closing(http.client.HTTPConnection(receiver.address, timeout=60)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_receiver(listening: Receiver) -> None:
    """Only an event of the alias ends the waiting; responses say nothing about the request."""
    assert post(listening, *signed({**EVENT, "data": {**DATA, "alias": "canary"}}, at=time.time())) == (200, "OK\n")
    assert listening.wait(0) is False
    assert post(listening, *signed(at=time.time()))[0] == 200
    assert listening.wait(60) is True
    assert listening.wait(0) is False
    assert post(listening, *signed(at=time.time(), secret=SECRET.upper())) == (401, "Unauthorized\n")
    assert post(listening, {}, b"")[0] == 400
    assert post(listening, {"Content-Length": "9" * 5000}, b"")[0] == 413
    assert post(listening, {"Content-Length": str(signature.MAX_BODY + 1)}, b"")[0] == 413
    assert post(listening, {"Transfer-Encoding": "chunked"}, b"")[0] == 411
    assert post(listening, {}, b"", "DELETE", "/<x>") == (501, "Not Implemented\n")
    assert post(listening, {}, b"", "GET", "/health")[0] == 200
    assert post(listening, {}, b"", "GET", "/other")[0] == 404
    assert listening.wait(0) is False
    rejections = listening.rejections()
    assert rejections["its signature is not valid"] == 1
    assert listening.rejections() == {}


def test_slow_requests_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one is closed when its time is over, and their number is limited."""
    monkeypatch.setattr(receiver_module, "_MAX_REQUESTS", 2)
    monkeypatch.setattr(receiver_module, "_REQUEST_SECONDS", 0.2)
    with receiving("127.0.0.1:0", Verifier(SECRET), "champion") as receiver:
        address = parse_address(receiver.address)
        connections = [socket.create_connection(address, 60) for _ in range(4)]
        for connection in connections:
            connection.send(b"POST / HTTP/1.1\r\n")
        for connection in connections:
            with closing(connection), pytest.MonkeyPatch.context():
                try:
                    while connection.recv(1024):
                        pass
                except ConnectionResetError:
                    pass
        monkeypatch.setattr(receiver_module, "_REQUEST_SECONDS", 60.0)
        assert status_of_repeated_post(receiver) == 200


def status_of_repeated_post(receiver: Receiver) -> int:
    """Return the status of the first response: a request that has just ended may still count for a moment."""
    for _ in range(100):
        try:
            return int(post(receiver, *signed(at=time.time()))[0])
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
    return 0


def test_address_in_use(listening: Receiver) -> None:
    """The error names the address."""
    with pytest.raises(SpecError) as caught, receiving(listening.address, Verifier(SECRET), "champion"):
        pass
    assert (caught.value.code, listening.address in caught.value.message) == ("sync.listen", True)


@pytest.mark.parametrize(
    ("options", "secret", "code"),
    [
        (("--json",), SECRET, "sync.listen"),
        (("--dry-run",), SECRET, "sync.listen"),
        ((), "", "sync.webhook-secret"),
    ],
)
def test_invalid_options(tmp_path: Path, options: tuple[str, ...], secret: str, code: str) -> None:
    """Exit code 2, before anything is read."""
    arguments = [
        "sync",
        "--alias",
        "champion",
        "--repository",
        str(tmp_path / "r"),
        "--listen",
        "127.0.0.1:0",
        *options,
    ]
    result = CliRunner().invoke(main, arguments, env={"REPOGEN_WEBHOOK_SECRET": secret})
    assert (result.exit_code, code in result.output) == (2, True), result.output


def test_error_of_one_sync_does_not_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook causes the next one; the first report and every change are printed."""
    monkeypatch.setenv("REPOGEN_WEBHOOK_SECRET", SECRET)
    unchanged = SyncReport(tmp_path, "champion", dry_run=False, versions=())
    changed = replace(unchanged, versions=(SyncedVersion("m", SyncAction.PUBLISHED, 2),))
    full = OSError(errno.ENOSPC, "No space left on device")
    outcomes: list[SyncReport | Exception] = [unchanged, TrackingError("no server"), full, unchanged, changed]

    def sync(*_: object, **__: object) -> SyncReport:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(api, "sync", sync)
    texts: list[str] = []
    with closing(api.follow(tmp_path, alias="champion", listen="127.0.0.1:0", interval=1e6)) as followed_syncs:
        for followed in followed_syncs:
            texts.append(followed_text(followed, begins=not texts, debug=False))
            if not outcomes:
                break
            address = followed.address
            with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
                headers, body = signed(at=time.time())
                connection.request("POST", "/", body, {})
                assert connection.getresponse().status == 400
            with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
                connection.request("POST", "/", body, headers)
                assert connection.getresponse().status == 200
    rejected = "1 rejected: it does not have the headers of MLflow's webhooks"
    assert "none is served" in texts[0]
    assert texts[1].startswith(rejected)
    assert "no server" in texts[1]
    assert "No space left on device" in texts[2]
    assert texts[3] == rejected
    assert "updated to champion" in texts[4]
