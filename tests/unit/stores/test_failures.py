"""A store that denies access, fails midway, or has hostile objects: a clear error, and what is served stays."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

import repogen
from repogen.errors import MissingExtraError, PublishError, RepogenError, SpecError
from repogen.files.url import location
from repogen.stores import fsspec_store, s3
from repogen.stores.claim import Claim, claim_name
from repogen.stores.interface import ChangedError, StoredObject
from repogen.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from repogen.stores.interface import Store
    from tests.support.published import Publisher


def store_of(url: str) -> Store:
    """Return the bucket of a URL."""
    return open_store(location(url))  # type: ignore[arg-type]


def state(url: str) -> dict[str, str]:
    """Return the tags of all objects."""
    return {each.key: each.tag for each in store_of(url).list("")}


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without credentials no request is sent; the hint says where they are looked for."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:9")):
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    with caplog.at_level(logging.WARNING), pytest.raises(PublishError) as caught:
        repogen.versions(repository="s3://bucket/models")
    assert (caught.value.code, caught.value.exit_code) == ("store.denied", 7)
    assert "AWS_PROFILE" in caught.value.hint


def test_secrets_in_errors_of_a_library_are_removed(buckets: Path) -> None:
    """A signed URL, or one with a password, may be in the message of any library."""
    assert buckets.is_dir()
    bucket = fsspec_store.FsspecStore("b", None)
    with pytest.raises(PublishError) as caught, bucket.requests():
        raise OSError("GET https://me:5ecre7@host/b?X-Amz-Signature=5ecre7 failed")
    assert "5ecre7" not in caught.value.message
    assert "host/b" in caught.value.message
    for url in ("http://me:p@5ecre7@host/b", "me:5ecre7@host/b"):
        with pytest.raises(PublishError, match="host/b") as caught, bucket.requests():
            raise OSError(f"Invalid endpoint: {url}")
        assert "5ecre7" not in caught.value.message


@pytest.mark.parametrize("endpoint", ["me:5ecre7@host", "no scheme"])
def test_endpoint_that_is_not_valid(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of a request, and not a bug of repogen."""
    credentials = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": endpoint}
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PublishError, match="Invalid endpoint") as caught:
        repogen.versions(repository="s3://bucket/models")
    assert caught.value.code == "store.request"
    assert "5ecre7" not in caught.value.message


def test_listing_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more than what shows that there are too many objects."""

    class Endless(fsspec_store.FsspecStore):
        """A bucket whose listing has no end that a command could wait for."""

        def _objects(self, prefix: str) -> Iterator[StoredObject]:
            for number in range(10_000):
                yield StoredObject(f"{prefix}{number}", 1, "tag", 0.0)

    monkeypatch.setattr(fsspec_store, "MAX_OBJECTS", 100)
    assert len(Endless("b", None).list("models/")) == 101


def test_configs_have_a_limit_together(dir_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory, and a bucket may have many."""
    from repogen_example_plugin.store import DirectoryBucket  # type: ignore[import-not-found]  # noqa: PLC0415

    listing = [StoredObject(f"team/models/m{number}/config.pbtxt", 2**20, "tag", 0.0) for number in range(257)]
    monkeypatch.setattr(
        DirectoryBucket, "list", lambda _, prefix: [each for each in listing if each.key.startswith(prefix)]
    )
    with pytest.raises(PublishError, match="256 MiB") as caught:
        repogen.versions(repository=dir_url)
    assert caught.value.code == "store.too-large"


def test_claim_that_is_not_listed_is_not_requested_without_a_pause(
    dir_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may refuse to create an object that it does not list."""
    pauses: list[float] = []
    monkeypatch.setattr("repogen.stores.claim.time.sleep", pauses.append)
    attempts = iter(range(10))
    monkeypatch.setattr(Claim, "_created", lambda _: len(pauses) == 3 or next(attempts) == 9)
    claim = Claim(store_of(dir_url), claim_name("m", 1))
    claim.acquire(lambda: None)
    claim.abandon()
    assert len(pauses) == 3


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint has the command that installs it."""
    import builtins  # noqa: PLC0415 - only this test replaces an import

    real = builtins.__import__

    def without_s3fs(name: str, *arguments: Any) -> Any:
        if name == "s3fs":
            raise ImportError("no module", name="s3fs")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_s3fs)
    with pytest.raises(MissingExtraError, match="s3fs is not installed") as caught:
        s3.S3().open("bucket")
    assert "[s3]" in caught.value.hint


@pytest.mark.parametrize(
    "key", ["m/../../x", "m//1/model.onnx", "m/1/" + "x" * 300, "m\ud800/1/x", "m/1/" + "x/" * 2000]
)
def test_hostile_key(key: str, dir_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key that would leave the working copy, or is not a path, is an error that names it; nothing is written."""
    from repogen_example_plugin.store import DirectoryBucket  # noqa: PLC0415

    listing = [StoredObject(f"team/models/{key}", 3, "tag", 0.0)]
    monkeypatch.setattr(
        DirectoryBucket, "list", lambda _, prefix: [each for each in listing if each.key.startswith(prefix)]
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(PublishError) as caught:
        repogen.versions(repository=dir_url)
    assert caught.value.code == "store.key"


@pytest.mark.parametrize(("size", "modified"), [(2**70, 0.0), (-1, 0.0), (1, 1e300)])
def test_response_that_is_not_valid(size: int, modified: float, dir_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size or a time that no file can have is an error of the store, and not a bug of repogen."""
    from repogen_example_plugin.store import DirectoryBucket  # noqa: PLC0415

    listing = [StoredObject("team/models/m/1/model.onnx", size, "tag", modified)]
    monkeypatch.setattr(
        DirectoryBucket, "list", lambda _, prefix: [each for each in listing if each.key.startswith(prefix)]
    )
    with pytest.raises(PublishError) as caught:
        repogen.versions(repository=dir_url)
    assert caught.value.code == "store.key"


def test_name_that_is_a_file_and_a_directory(dir_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket can have both."""
    from repogen_example_plugin.store import DirectoryBucket  # noqa: PLC0415

    listing = [StoredObject(f"team/models/m/{name}", 3, "tag", 0.0) for name in ("1", "1/model.onnx")]
    monkeypatch.setattr(
        DirectoryBucket, "list", lambda _, prefix: [each for each in listing if each.key.startswith(prefix)]
    )
    with pytest.raises(PublishError) as caught:
        repogen.versions(repository=dir_url)
    assert caught.value.code == "store.copy"


@pytest.mark.parametrize("method", ["upload", "create", "replace", "delete"])
def test_store_that_fails_midway(
    method: str, dir_url: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call of a method: the old version is served, and the next publish completes."""
    from repogen_example_plugin.store import DirectoryBucket  # noqa: PLC0415

    publisher.publish(weights=b"w0")
    repogen.publish("m", source=publisher.repository, target=dir_url)
    original = getattr(DirectoryBucket, method)
    for failing in range(20):
        publisher.publish(weights=b"w%d" % (failing + 1))
        calls = iter(range(100))

        def fail(*arguments: Any, calls: Any = calls, failing: int = failing) -> Any:
            if next(calls) == failing:
                raise PublishError("the store went away", code="store.request")
            return original(*arguments)

        before = repogen.versions("m", repository=dir_url).models[0].served
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryBucket, method, fail)
            try:
                repogen.publish("m", source=publisher.repository, target=dir_url)
            except RepogenError as error:
                code = error.code
            else:
                assert failing > 0
                return
        assert code == "store.request"
        model = repogen.versions("m", repository=dir_url).models[0]
        assert repogen.verify(dir_url).findings == ()
        assert model.served in {before, (before[0] + 1,)}
        if model.served == before:
            end_of_lease(dir_url, before[0] + 1)
            repogen.publish("m", source=publisher.repository, target=dir_url)
    raise AssertionError("more than 20 calls")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupt_after_the_change(
    error: type[BaseException], dir_url: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that replaces config.pbtxt has its effect, and its response does not arrive: the version is kept."""
    from repogen_example_plugin.store import DirectoryBucket  # noqa: PLC0415

    publisher.publish(weights=b"w0")
    repogen.publish("m", source=publisher.repository, target=dir_url)
    publisher.publish(weights=b"w1")
    original = DirectoryBucket.replace

    def replace(store: DirectoryBucket, key: str, *arguments: Any) -> Any:
        tag = original(store, key, *arguments)
        if key.endswith("config.pbtxt"):
            raise error
        return tag

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryBucket, "replace", replace)
        with pytest.raises(error):
            repogen.publish("m", source=publisher.repository, target=dir_url)
    assert repogen.versions("m", repository=dir_url).models[0].served == (2,)
    assert repogen.verify(dir_url).findings == ()


def end_of_lease(url: str, version: int) -> None:
    """Delete the claim of this process if it was left, as the store went away: another one would take it over."""
    store_of(url).delete([f"team/models/{claim_name('m', version)}"])


def test_claim_that_was_lost(dir_url: str) -> None:
    """A process that was stopped for too long cannot go on."""
    store = store_of(dir_url)
    claim = Claim(store, claim_name("m", 1))
    claim.acquire(lambda: None)
    tag = next(each.tag for each in store.list(claim.key))
    store.replace(claim.key, b"of another process", tag)
    with pytest.raises(ChangedError):
        claim.renew()
    claim.abandon()


def test_empty_and_foreign_repository(dir_url: str, buckets: Path) -> None:
    """A bucket without models, and one with a model that repogen did not build."""
    (buckets / "b" / "team" / "models").mkdir(parents=True)
    (buckets / "b" / "team" / "models" / "notes.txt").write_text("mine", encoding="utf-8")
    assert repogen.versions(repository=dir_url).models == ()
    with pytest.raises(SpecError, match="has no models"):
        repogen.verify(dir_url)
    version = buckets / "b" / "team" / "models" / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(b"theirs")
    before = state(dir_url)
    (model,) = repogen.versions(repository=dir_url).models
    assert (model.versions[0].size, model.versions[0].problem[:21]) == (6, "repogen did not build")
    with pytest.raises(PublishError):
        repogen.rollback("m", 1, repository=dir_url)
    assert repogen.prune(keep=0, repository=dir_url).deleted == ()
    assert state(dir_url) == before


def test_config_that_names_a_missing_version(dir_url: str, buckets: Path, publisher: Publisher) -> None:
    """Commands describe the repository as it is, until a user restores the file."""
    for weights in (b"w0", b"w1"):
        publisher.publish(weights=weights)
        repogen.publish("m", source=publisher.repository, target=dir_url)
    directory = buckets / "b" / "team" / "models" / "m"
    shutil.rmtree(directory / "2")
    (model,) = repogen.versions("m", repository=dir_url).models
    assert [each.version for each in model.versions] == [1]
    assert (model.served, model.problem) == ((), "its version policy serves none of its versions")
    with pytest.raises(PublishError, match="was edited after"):
        repogen.publish("m", source=publisher.repository, target=dir_url)
    shutil.copy(directory / "1" / "config.pbtxt", directory / "config.pbtxt")
    repogen.publish("m", source=publisher.repository, target=dir_url)
    assert repogen.versions("m", repository=dir_url).models[0].served == (2,)


class HostileS3(BaseHTTPRequestHandler):
    """A server of S3 whose responses have no end: listings without objects, and objects larger than listed."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a page of a listing, or an object."""
        query = parse_qs(urlsplit(self.path).query)
        received.append(self.path)
        if "list-type" in query and query["prefix"][0] == "headers/":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
            self._repeat(b"x", 0.05)
        elif "list-type" in query and query["prefix"][0] in ENDLESS:
            self._send(2**50)
            self._repeat(*ENDLESS[query["prefix"][0]])
        elif "list-type" in query and query["prefix"][0] == "other/":
            body = b"<ListBucketResult><Contents>%b</Contents></ListBucketResult>" % ENTRY
            self._send(len(body), body)
        elif "list-type" in query:
            body = LISTING.format(prefix=query["prefix"][0]).encode()
            self._send(len(body), body)
        elif self.path.endswith("chunked"):
            self.send_response(HTTPStatus.OK)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._repeat(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
        else:
            self._send(2**50)
            self._repeat(b"x" * 2**16)

    def _send(self, size: int, body: bytes = b"") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(body)

    def _repeat(self, block: bytes, pause: float = 0.0) -> None:
        with suppress(OSError):
            while True:
                self.wfile.write(block)
                time.sleep(pause)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


received: list[str] = []
"""The requests that arrived."""
ENDLESS = {"large/": (b" " * 2**16, 0.0), "slow/": (b" ", 0.05)}
"""What a listing of a prefix repeats, and the seconds between two of these."""
ENTRY = b"<Key>secrets/x</Key><Size>1</Size><ETag>1</ETag><LastModified>2026-01-01T00:00:00Z</LastModified>"
LISTING = (
    "<ListBucketResult><Prefix>{prefix}</Prefix><IsTruncated>true</IsTruncated><NextContinuationToken>x"
    "</NextContinuationToken></ListBucketResult>"
)


@pytest.fixture
def hostile_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Return a bucket of such a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), HostileS3)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    received.clear()
    url = f"http://127.0.0.1:{server.server_port}"
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "ENDPOINT_URL": url, "REGION": "us-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    yield store_of("s3://bucket/models")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("key", ["large", "chunked"])
def test_object_that_has_no_end(key: str, hostile_s3: Store, tmp_path: Path) -> None:
    """No more is read or written than was listed or requested."""
    with pytest.raises(PublishError, match=r"bytes") as caught:
        hostile_s3.download(key, tmp_path / "copy", 100_000)
    assert caught.value.code == "store.request"
    assert not (tmp_path / "copy").exists() or (tmp_path / "copy").stat().st_size < 1_000_000
    with pytest.raises(PublishError, match="in response to a request for 70000"):
        hostile_s3.read(key, 70_000)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("fsspec_store._MAX_PAGES", 5, "more than 5 pages"),
        ("fsspec_store._MAX_EMPTY_PAGES", 3, "3 pages of a listing without objects"),
        ("limits.SECONDS", 0.0, "was not complete after 0 s"),
    ],
)
def test_listing_without_objects_that_has_no_end(
    name: str, value: float, message: str, hostile_s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each response names another page."""
    monkeypatch.setattr(f"repogen.stores.{name}", value)
    with pytest.raises(PublishError, match=message) as caught:
        list(hostile_s3.list("models/"))
    assert caught.value.code == "store.request"


def test_time_of_a_listing_grows_with_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 s, and 2 s for 1000 objects."""
    clock = [0.0]
    monkeypatch.setattr("repogen.stores.limits.time", SimpleNamespace(monotonic=lambda: clock[0]))
    pages = fsspec_store.Pages()
    for _ in range(100):
        clock[0] += 2.5
        pages.add(1000)
    clock[0] += 12.5
    with pytest.raises(PublishError, match="a listing of the store was not complete after 262 s"):
        pages.add(1000)


@pytest.mark.parametrize("method", ["read", "list"])
def test_store_that_is_slow_for_each_object(
    method: str, dir_url: str, publisher: Publisher, buckets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files, and versions whose manifest is not listed: the time of all requests has a limit."""
    from repogen_example_plugin.store import DirectoryBucket  # noqa: PLC0415

    publisher.publish(weights=b"w0")
    repogen.publish("m", source=publisher.repository, target=dir_url)
    for number in range(2, 42):
        (buckets / "b" / "team" / "models" / "m" / str(number)).mkdir()
        (buckets / "b" / "team" / "models" / "m" / str(number) / "model.onnx").write_bytes(b"w")
    clock, requests = [0.0], [0]
    monkeypatch.setattr("repogen.stores.limits.time", SimpleNamespace(monotonic=lambda: clock[0]))
    original = getattr(DirectoryBucket, method)

    def slow(bucket: Any, key: str, *limit: int) -> Any:
        clock[0] += 25
        requests[0] += 1
        return original(bucket, key, *limit)

    monkeypatch.setattr(DirectoryBucket, method, slow)
    with pytest.raises(PublishError, match=r"the listing of dir://.* was not complete after 60\.") as caught:
        repogen.versions(repository=dir_url)
    assert caught.value.code == "store.request"
    assert requests[0] < 10


@pytest.mark.parametrize(
    ("prefix", "message"),
    [("large/", "larger than 1000000 bytes"), ("slow/", "after 0."), ("headers/", "after 0.")],
)
def test_response_that_has_no_end(
    prefix: str, message: str, hostile_s3: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library would read it into memory, and wait for each byte, five times; now it does not wait again."""
    monkeypatch.setattr(hostile_s3, "requests", partial(_limited_requests, hostile_s3))
    with pytest.raises(PublishError, match=message) as caught:
        list(hostile_s3.list(prefix))
    assert (caught.value.code, len(received)) == ("store.request", 2)


def _limited_requests(store: Any) -> AbstractContextManager[None]:
    limited: AbstractContextManager[None] = store.requests_to("bucket", 1_000_000, 0.3)
    return limited


def test_object_that_was_not_requested(hostile_s3: Store) -> None:
    """Its key is not below the prefix, so it has no path in the working copy."""
    with pytest.raises(PublishError, match="in response to a request for 'other/'") as caught:
        list(hostile_s3.list("other/"))
    assert caught.value.code == "store.key"


@pytest.mark.parametrize("answer", [{"Contents": [{"Key": "m"}]}, {"Contents": [7]}, {"Contents": 7}])
def test_response_without_fields(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the store, and not a bug of repogen."""
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(s3.S3Store, "_call", lambda *_, **__: answer)
    with pytest.raises(PublishError, match="a response of s3://bucket is not valid"):
        list(store_of("s3://bucket/models").list("models/"))


@pytest.mark.parametrize("free", [10, 50_000])
def test_objects_larger_than_the_disk(
    publisher: Publisher, dir_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Nothing is downloaded: neither small files, of which a store may have 200,000, nor weights."""
    publisher.publish(weights=bytes(100_000))
    repogen.publish("m", source=publisher.repository, target=dir_url)
    monkeypatch.setattr("repogen.files.paths.shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(PublishError, match=rf"[0-9]+ bytes, and the disk of .* has space for {free}") as caught:
        repogen.publish("m", source=dir_url, target=tmp_path / "copy" / "repo")
    assert (caught.value.code, caught.value.exit_code) == ("store.copy", 7)
    assert not (tmp_path / "copy" / "repo" / "m").exists()


def test_claim_that_a_store_never_creates(dir_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store without conditional writes rejects each of them."""
    monkeypatch.setattr("repogen.stores.claim.time.sleep", lambda _: None)
    monkeypatch.setattr(Claim, "_created", lambda _: False)
    with pytest.raises(PublishError, match="rejected 201 attempts"):
        Claim(store_of(dir_url), claim_name("m", 1)).acquire(lambda: None)


def test_claim_that_is_always_renewed(dir_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write to the bucket could let every publish wait without an end."""
    store = store_of(dir_url)
    key = claim_name("m", 1)
    tag, clock = [store.create(key, b"0")], [0.0]

    def renew(_: float) -> None:
        clock[0] += 100
        tag[0] = store.replace(key, b"%d" % clock[0], tag[0])

    monkeypatch.setattr("repogen.stores.claim.time", SimpleNamespace(monotonic=lambda: clock[0], sleep=renew))
    with pytest.raises(PublishError, match=r"the claim \.repogen\.m\.1\.claim\.json for 60 minutes") as caught:
        Claim(store, key).acquire(lambda: None)
    assert caught.value.code == "store.changed"
