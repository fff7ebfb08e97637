"""Objects with a content encoding, which anyone who can write to a bucket can set: nothing unpacks them in memory."""

from __future__ import annotations

import gzip
import json

import pytest

from repogen.errors import PublishError
from repogen.stores.azure import AzureStore
from repogen.stores.gcs import GcsStore
from tests.support.hostile_server import hostile_server

HEAD = "HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n{more}\r\n"
TIME = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
ACCOUNT = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{address}/a;"


def test_azure_returns_the_stored_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its SDK would unpack them."""
    content = gzip.compress(bytes(2**24))
    extent = f"Content-Range: bytes 0-{len(content) - 1}/{len(content)}\r\n"
    more = f'Content-Encoding: gzip\r\n{extent}ETag: "1"\r\n{TIME}x-ms-blob-type: BlockBlob\r\n'
    head = HEAD.format(status="206 Partial Content", size=len(content), more=more)
    with hostile_server(head.encode() + content) as address:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", ACCOUNT.format(address=address))
        assert AzureStore("container").read("model/config.pbtxt", 2**20) == content


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_google_lists_the_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """Google unpacks such an object itself, and ignores the range of the request."""
    entry = {"name": "m/config.pbtxt", "updated": "2024-01-01T00:00:00Z", "size": "1", "generation": "1"}
    body = json.dumps({"items": [{**entry, "contentEncoding": encoding}]}).encode()
    head = HEAD.format(status="200 OK", size=len(body), more="Content-Type: application/json\r\n")
    with hostile_server(head.encode() + body) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "test")
        with pytest.raises(PublishError, match=r"'m/config\.pbtxt' with a content encoding") as caught:
            GcsStore("bucket").list("m/")
    assert caught.value.code == "store.encoding"
