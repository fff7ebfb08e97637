"""Limits on HTTP responses, with every client that repogen uses; each server here is hostile."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from requests import Session
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from repogen import responses
from repogen.artifacts.tracking import Tracking
from repogen.errors import PublishError, TrackingError
from repogen.files.url import RepositoryUrl, location
from repogen.registry.mlflow import preflight as preflight_module
from repogen.registry.mlflow.client import connect
from repogen.registry.mlflow.download import download_file
from repogen.registry.mlflow.library import MlflowException, get_artifact_repository
from repogen.registry.mlflow.preflight import preflight
from repogen.responses import ResponseError, limited_adapter, response_limits, without_netrc
from repogen.stores import oci
from repogen.stores.oci import Registry, reference
from tests.support.hostile_server import hostile_server
from tests.support.responding import responding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BLOCK = b"x" * 2**16
LARGE = [
    (OK, BLOCK),
    (CHUNKED, b"10000\r\n" + BLOCK + b"\r\n"),
    (b"HTTP/1.1 503 Busy\r\nRetry-After: 999999999\r\n\r\n", BLOCK),
    (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", BLOCK),
    (b"HTTP/1.1 404 Missing\r\n\r\n", BLOCK),
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
]
SLOW = [(OK, b"x"), (b"HTTP/1.1 200 OK\r\nX: ", b"x"), (b"", b"\r")]
IDS = ["body", "chunks", "busy", "redirect", "missing", "continue"]
SLOW_IDS = ["slow body", "slow headers", "slow status"]


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_BYTES", 2**16)
    monkeypatch.setattr(responses, "_HEADER_BYTES", 2**16)
    monkeypatch.setattr(oci, "_MAX_MANIFEST_BYTES", 2**16)
    monkeypatch.setattr(oci, "_SECONDS", 0.3)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")


@pytest.fixture
def session() -> Iterator[Session]:
    """Return a session with limits, which repeats requests."""
    retry = Retry(2, status_forcelist={503}, respect_retry_after_header=False, raise_on_status=False)
    with Session() as session:
        session.mount("http://", limited_adapter(HTTPAdapter)(max_retries=retry))
        yield session


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("parts", LARGE, ids=IDS)
def test_large_response(session: Session, parts: tuple[bytes, bytes], *, stream: bool) -> None:
    """Also one that the client reads to discard it: before a retry, or after a redirect."""
    with hostile_server(*parts) as address, response_limits(2**16), pytest.raises(ResponseError, match="larger than"):
        session.get(f"http://{address}/", stream=stream, timeout=5).content  # noqa: B018 - reads it


def test_total_of_all_responses(session: Session) -> None:
    """Each of them is within its own limit; after the block, the next one begins at zero."""
    with responding(200, bytes(2**15), []) as address:
        with response_limits(2**16, total=2**16):
            assert len(session.get(address, timeout=5).content) == 2**15
            with pytest.raises(ResponseError, match="larger than 65536 bytes in total"):
                session.get(address, timeout=5)
        with response_limits(2**16, total=2**16):
            assert len(session.get(address, timeout=5).content) == 2**15


@pytest.mark.parametrize("parts", SLOW, ids=SLOW_IDS)
def test_slow_response(session: Session, parts: tuple[bytes, bytes]) -> None:
    """Every byte arrives within the timeout; the request is not sent again."""
    with (
        hostile_server(*parts, pause=0.01) as address,
        pytest.raises(ResponseError, match=r"not complete after 0\.2"),
    ):
        session.get(f"http://{address}/", timeout=(5, 0.2))


def test_compressed_response(session: Session) -> None:
    """It could unpack to any size; a stream without limits is left to its user."""
    body = gzip.compress(bytes(2**20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with hostile_server(head + body) as address:
        with pytest.raises(ResponseError, match="encoded as 'gzip'"):
            session.get(f"http://{address}/")
        assert session.get(f"http://{address}/", stream=True).content == bytes(2**20)


@pytest.mark.parametrize("first", ["identity", ""])
def test_two_encodings(session: Session, first: str) -> None:
    """urllib3 joins the values of several headers, and unpacks by the last one."""
    body = gzip.compress(bytes(2**20))
    lines = ("HTTP/1.1 200 OK", f"Content-Encoding: {first}", "Content-Encoding: gzip", f"Content-Length: {len(body)}")
    with (
        hostile_server("\r\n".join((*lines, "", "")).encode() + body) as address,
        pytest.raises(ResponseError, match="encoded as"),
    ):
        session.get(f"http://{address}/")


def test_part_of_a_file_may_be_as_large_as_requested(session: Session) -> None:
    """MLflow reads parts of 100 MiB into memory."""
    body = bytes(2**18)
    head = f"HTTP/1.1 206 Partial Content\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with hostile_server(head + body) as address:
        response = session.get(f"http://{address}/", headers={"Range": f"bytes=0-{len(body) - 1}"})
    assert response.content == body


@pytest.mark.parametrize("parts", [*LARGE[:3], *SLOW[:1]], ids=[*IDS[:3], *SLOW_IDS[:1]])
def test_mlflow(tmp_path: Path, parts: tuple[bytes, bytes]) -> None:
    """MLflow's own client: in bounded time and memory, with one error."""
    pause = 0.01 if parts in SLOW else 0.0
    with hostile_server(*parts, pause=pause) as address:
        connection = connect(Tracking(f"http://{address}", "repogen", register=True, root=tmp_path))
        with (
            pytest.raises(TrackingError, match=r"reading the models failed: .*the response (is larger|was not)"),
            connection.doing("reading the models"),
        ):
            connection.client.search_registered_models()


@pytest.mark.parametrize("parts", LARGE[:2], ids=IDS[:2])
def test_artifact_of_mlflow(tmp_path: Path, parts: tuple[bytes, bytes]) -> None:
    """A server sends more than it listed, without an end: the file has no more than that, and a margin."""
    with hostile_server(*parts) as address:
        artifacts = get_artifact_repository(f"http://{address}/api/2.0/mlflow-artifacts/artifacts/m")
        with pytest.raises(ResponseError, match="larger than 65536 bytes"):
            download_file(artifacts, "model.onnx", 2**16, tmp_path)
    assert (tmp_path / "model.onnx").stat().st_size <= 2**17


@pytest.mark.parametrize("parts", [LARGE[3], LARGE[5], *SLOW[1:]], ids=[IDS[3], IDS[5], *SLOW_IDS[1:]])
def test_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, bytes]) -> None:
    """The first request to a tracking server."""
    monkeypatch.setattr(preflight_module, "_MAX_BYTES", 2**16)
    with (
        hostile_server(*parts, pause=0.01 if parts in SLOW else 0.0) as address,
        pytest.raises(TrackingError, match="is not an MLflow server: the response") as caught,
    ):
        preflight(Tracking(f"http://{address}", "repogen", register=True, root=tmp_path), seconds=0.3)
    assert caught.value.code == "tracking.foreign"


@pytest.mark.parametrize("parts", [*LARGE, *SLOW], ids=[*IDS, *SLOW_IDS])
def test_oci_registry(parts: tuple[bytes, bytes]) -> None:
    """The first request to a registry; it is repeated only where the connection failed."""
    with hostile_server(*parts, pause=0.01 if parts in SLOW else 0.0) as address:
        url = location(f"oci://{address}/m:1")
        assert isinstance(url, RepositoryUrl)
        with pytest.raises(PublishError, match=r"failed: the response (is larger|was not complete)") as caught:
            Registry(reference(url))
    assert caught.value.code == "store.request"


@contextmanager
def slow_reader() -> Iterator[str]:
    """Run a server that accepts some bytes before each timeout, and does not respond; yield its host and port."""

    def read() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while connection.recv(2**16):
                time.sleep(0.005)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


@pytest.mark.parametrize("as_file", [False, True], ids=["bytes", "file"])
def test_server_that_hardly_reads_an_upload(session: Session, *, as_file: bool) -> None:
    """Each write succeeds within the timeout."""
    content = bytes(2**26)
    with (
        slow_reader() as address,
        response_limits(2**16, bytes_per_second=2**40),
        pytest.raises(ResponseError, match=r"the request was not sent after 0\.5"),
    ):
        session.put(f"http://{address}/", data=BytesIO(content) if as_file else content, timeout=0.5)


def test_upload_is_repeated_from_its_start(session: Session) -> None:
    """After a response such as 503, and with all its bytes."""
    bodies: list[bytes] = []
    with responding(503, b"", [], bodies=bodies) as address:
        assert session.put(address, data=BytesIO(b"content"), timeout=5).status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert bodies == [b"content"] * 3


def _artifacts(address: str) -> Any:
    return get_artifact_repository(f"{address}/api/2.0/mlflow-artifacts/artifacts/m")


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a file that MLflow uploads in two parts, if the server offers that."""
    monkeypatch.setenv("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "true")
    monkeypatch.setenv("MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE", "1")
    monkeypatch.setenv("MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE", str(2**20))
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(2**21))
    return path


def _offer(*urls: str) -> bytes:
    credentials = [{"url": url, "part_number": index, "headers": {}} for index, url in enumerate(urls, 1)]
    return json.dumps({"upload_id": "1", "credentials": credentials}).encode()


@pytest.mark.parametrize("parts", [*LARGE[:2], *SLOW], ids=[*IDS[:2], *SLOW_IDS])
def test_upload_of_mlflow_in_parts(in_parts: Path, parts: tuple[bytes, bytes]) -> None:
    """The server of a part, which the tracking server names, responds slowly or without an end."""
    with hostile_server(*parts, pause=0.01 if parts in SLOW else 0.0) as store:
        url = f"http://{store}/part"
        with responding(200, _offer(url, url), []) as address, pytest.raises(MlflowException, match="Failed to upload"):
            _artifacts(address).log_artifact(str(in_parts))


@pytest.mark.parametrize("count", [1, 3])
def test_upload_of_mlflow_in_another_number_of_parts(in_parts: Path, count: int) -> None:
    """Fewer parts would be a truncated file, and many would have no end."""
    authorizations: list[str | None] = []
    with (
        responding(200, b"", authorizations) as store,
        responding(200, _offer(*[f"{store}/part"] * count), []) as address,
        pytest.raises(ResponseError, match=f"the server expects {count} parts of a file that has 2"),
    ):
        _artifacts(address).log_artifact(str(in_parts))
    assert authorizations == []


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials that requests would send to every server."""
    file = tmp_path / "netrc"
    file.write_text("default login me password s3cret\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))


@pytest.mark.usefixtures("netrc")
def test_credentials_of_netrc_are_not_sent(session: Session) -> None:
    """Neither to a server, nor after a redirect to another one; those of a URL are, and a header is not replaced."""
    first: list[str | None] = []
    second: list[str | None] = []
    without_netrc(session)
    with responding(200, b"", second) as other, responding(302, b"", first, f"{other}/") as address:
        session.get(address)
        session.get(address, headers={"Authorization": "Bearer t"})
        session.get(address.replace("//", "//u:p@"))
    assert first == [None, "Bearer t", "Basic dTpw"]
    assert second == [None, None, None]


@pytest.mark.usefixtures("netrc")
def test_mlflow_sends_its_own_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_parts: Path) -> None:
    """And none to another server, which a registered version may name."""
    received: list[str | None] = []
    with responding(200, b"{}", received) as address:
        connection = connect(Tracking(address, "repogen", register=True, root=tmp_path))
        connection.client.search_registered_models()
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t")
        connection.client.search_registered_models()
        monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
        download_file(_artifacts(address), "downloaded.onnx", 2**16, tmp_path)
        with responding(200, _offer(*[f"{address}/part"] * 2), []) as tracking:
            _artifacts(tracking).log_artifact(str(in_parts))
    assert received == [None, "Bearer t", None, None, None]


@pytest.mark.usefixtures("netrc")
def test_oci_registry_receives_no_credentials_of_netrc() -> None:
    """Docker's configuration has those of registries."""
    received: list[str | None] = []
    with responding(404, b"", received) as address:
        url = location(f"oci://{address.removeprefix('http://')}/m:1")
        assert isinstance(url, RepositoryUrl)
        with Registry(reference(url)) as registry:
            assert registry.digest() is None
    assert set(received) == {None}
