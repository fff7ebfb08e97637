"""Responses with values that no store sends: an error of the store, not exit code 70."""

from __future__ import annotations

import json

import pytest

from repogen.errors import PublishError
from repogen.stores.azure import AzureStore
from repogen.stores.gcs import GcsStore
from repogen.stores.s3 import S3Store
from tests.support.hostile_server import hostile_server
from tests.support.responding import responding

HEAD = "HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n{more}\r\n"
DEEP = "[" * 100_000
ENTRY = {"name": "m/1", "updated": "2024-01-01T00:00:00Z", "size": "1", "generation": "1"}
S3_LIST = (
    "<ListBucketResult><Contents><Key>m/1</Key><LastModified>{time}</LastModified><ETag>1</ETag><Size>{size}</Size>"
    "</Contents></ListBucketResult>"
)
AZURE_LIST = (
    "<EnumerationResults ServiceEndpoint='http://x/' ContainerName='bucket'><Blobs><Blob><Name>m/1</Name><Properties>"
    "<Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT</Last-Modified><Etag>1</Etag>{size}<BlobType>BlockBlob</BlobType>"
    "</Properties></Blob></Blobs><NextMarker/></EnumerationResults>"
)
ACCOUNT = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{address}/a;"


def rejected(store: str, body: str, monkeypatch: pytest.MonkeyPatch) -> PublishError:
    """Return the error of a listing for which a store returns ``body``."""
    more = f"Content-Type: application/{'json' if store == 'gs' else 'xml'}\r\n"
    head = HEAD.format(status="200 OK", size=len(body), more=more)
    with hostile_server(head.encode() + body.encode()) as address:
        variables = {
            "STORAGE_EMULATOR_HOST": f"http://{address}",
            "GOOGLE_CLOUD_PROJECT": "test",
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "key",
            "AZURE_STORAGE_CONNECTION_STRING": ACCOUNT.format(address=address),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(PublishError) as caught:
            {"gs": GcsStore, "s3": S3Store, "az": AzureStore}[store]("bucket").list("m/")
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"items": [{**ENTRY, "size": float("inf")}]}),
        json.dumps({"items": [{**ENTRY, "size": 1}]}).replace('"size": 1', '"size": 1e400'),
        json.dumps({"items": [{**ENTRY, "size": float("nan")}]}),
        json.dumps({"items": [{**ENTRY, "name": ["m/"]}]}),
        json.dumps({"items": [{**ENTRY, "contentEncoding": {}}]}),
        json.dumps({"nextPageToken": {"a": 1}}),
        DEEP,
        "null",
    ],
    ids=["infinity", "1e400", "nan", "name", "encoding", "token", "deep", "null"],
)
def test_google(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its listings are JSON, which Python's decoder accepts with infinite numbers."""
    assert rejected("gs", body, monkeypatch).code == "store.request"


@pytest.mark.parametrize(("time", "size"), [("inf", "1"), ("99999999999999999", "1"), ("0", "Infinity")])
def test_s3(time: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library reads times and numbers."""
    assert rejected("s3", S3_LIST.format(time=time, size=size), monkeypatch).code == "store.request"


@pytest.mark.parametrize("size", ["", "<Content-Length>Infinity</Content-Length>"])
def test_azure(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library does not require a size."""
    assert rejected("az", AZURE_LIST.format(size=size), monkeypatch).code == "store.request"


def test_redirect_of_s3_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other host would receive the session token."""
    redirected: list[str | None] = []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "value")
    with responding(200, b"", redirected) as other:
        answer = HEAD.format(status="307 Temporary Redirect", size=0, more=f"Location: {other}/bucket/m/1\r\n")
        with hostile_server(answer.encode()) as address:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
            store = S3Store("bucket")
            with pytest.raises(PublishError):
                store.list("m/")
    assert redirected == []
