"""Responses that a library parses: without a document type, whose entities could unpack to any size, and not large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repogen.errors import PublishError
from repogen.stores import limits
from repogen.stores.azure import AzureStore
from repogen.stores.gcs import GcsStore
from repogen.stores.s3 import S3Store
from tests.support.hostile_server import hostile_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from repogen.stores.fsspec_store import FsspecStore

    Open = Callable[[str, str], FsspecStore]

HEAD = "HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n{more}\r\n"
ACCOUNT = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{address}/a;"
LISTING = {
    "s3": "<ListBucketResult>{}</ListBucketResult>",
    "az": '<EnumerationResults ContainerName="c"><Blobs></Blobs>{}<NextMarker /></EnumerationResults>',
}
ENTITIES = '<!DOCTYPE r [<!ENTITY a "{}"><!ENTITY b "{}">]>'.format("<x/>" * 100, "&a;" * 100)
OBJECT = b"<!DOCTYPE html>\0" * 1000


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return what opens the bucket of a scheme at an address."""

    def open_bucket(scheme: str, address: str) -> FsspecStore:
        endpoint = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "ENDPOINT_URL": f"http://{address}"}
        for name, value in {**endpoint, "REGION": "us-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", ACCOUNT.format(address=address))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "test")
        store: FsspecStore = {"s3": S3Store, "az": AzureStore, "gs": GcsStore}[scheme]("bucket")
        return store

    return open_bucket


def response(body: bytes, status: str = "200 OK", more: str = "Content-Type: application/xml\r\n") -> bytes:
    """Return a response of a server."""
    return HEAD.format(status=status, size=len(body), more=more).encode() + body


@pytest.mark.parametrize(
    ("scheme", "encoding", "charset"),
    [
        ("s3", "utf-8", ""),
        ("s3", "utf-16", ""),
        ("az", "utf-8", "; charset=utf-8"),
        ("az", "utf-8-sig", ""),
        ("az", "utf-16", "; charset=utf-16"),
        ("az", "cp037", '; charset="cp037"'),
        ("az", "utf-7", "; charset=utf-8''utf-7"),
    ],
)
def test_document_type(scheme: str, encoding: str, charset: str, opened: Open) -> None:
    """It is rejected before the library parses it."""
    body = ENTITIES + LISTING[scheme].format("&b;" * 10)
    head = f"Content-Type: application/xml{charset}\r\n"
    with (
        hostile_server(response(body.encode(encoding), more=head)) as address,
        pytest.raises(PublishError, match="the response has a document type, or an encoding") as caught,
    ):
        opened(scheme, address).list("m/")
    assert caught.value.code == "store.request"


@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_large_listing(scheme: str, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its elements take many times as much memory."""
    body = LISTING[scheme].format("<x/>" * 1000).encode()
    with hostile_server(response(body)) as address:
        store = opened(scheme, address)
        assert store.list("m/") == []
        monkeypatch.setattr(limits, "_MAX_DOCUMENT_BYTES", 2000)
        with pytest.raises(PublishError, match="larger than 2000 bytes"):
            store.list("m/")


@pytest.mark.parametrize("scheme", ["s3", "az", "gs"])
def test_page_of_a_proxy(scheme: str, opened: Open) -> None:
    """The error is that of the status."""
    body = ENTITIES + "<html>&b;</html>"
    with (
        hostile_server(response(body.encode(), "403 Forbidden")) as address,
        pytest.raises(PublishError, match="was denied") as caught,
    ):
        opened(scheme, address).list("m/")
    assert caught.value.code == "store.denied"


@pytest.mark.parametrize("scheme", ["s3", "az", "gs"])
def test_object_with_a_document_type(
    scheme: str, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object may have any bytes, also more than a listing."""
    monkeypatch.setattr(limits, "_MAX_DOCUMENT_BYTES", 2000)
    size = len(OBJECT)
    extent = f"Content-Range: bytes 0-{size - 1}/{size}\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
    more = f'{extent}Content-Type: text/html; charset=utf-16\r\nETag: "1"\r\nx-ms-blob-type: BlockBlob\r\n'
    with hostile_server(response(OBJECT, "206 Partial Content", more)) as address:
        store = opened(scheme, address)
        assert store.read("m/notes.html", 2**20) == OBJECT
        if scheme == "gs":  # it requests the properties first
            monkeypatch.setattr(store.filesystem, "_info", _no_properties)
        store.download("m/notes.html", tmp_path / "notes.html", size)
    assert (tmp_path / "notes.html").read_bytes() == OBJECT


async def _no_properties(*_args: object, **_options: object) -> dict[str, object]:
    return {"type": "file", "size": len(OBJECT)}
