"""Images of an OCI registry: what `repogen publish` pushes, and what commands read. The registry is Debian's."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import tarfile
from base64 import b64encode
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from requests import Session
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidSchema

import repogen
from repogen.cli.group import main
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.files.url import RepositoryUrl, location
from repogen.stores import oci
from repogen.stores.oci import CONFIG, LAYER, MANIFEST, Contents, Registry, describe, extract, pull, reference
from tests.support.oci_registry import PASSWORD, USER, oci_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.published import Publisher

DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """Run a registry for the tests of this module."""
    with oci_registry() as host:
        yield host


@pytest.fixture
def source(publisher: Publisher) -> Path:
    """Return a repository with two versions of `m`."""
    publisher.publish(weights=b"1")
    publisher.publish(weights=b"2", labels=("a", "b"))
    return publisher.repository


def manifest(host: str, name: str, tag: str) -> dict[str, Any]:
    """Return the manifest of an image."""
    request = Request(
        f"http://{host}/v2/{name}/manifests/{tag}", headers={"Accept": "application/vnd.oci.image.manifest.v1+json"}
    )
    with urlopen(request) as response:  # noqa: S310 - the test's registry
        document: dict[str, Any] = json.load(response)
    return document


def blob(host: str, name: str, digest: str) -> bytes:
    """Return a blob of an image."""
    with urlopen(f"http://{host}/v2/{name}/blobs/{digest}") as response:
        content: bytes = response.read()
    return content


def image(text: str) -> RepositoryUrl:
    """Return the URL of an image."""
    place = location(text)
    assert isinstance(place, RepositoryUrl)
    return place


@pytest.mark.parametrize(
    ("text", "name", "tag"),
    [
        ("oci://host/digits:3", "digits", "3"),
        ("oci://host:5000/team/digits:v3.1_a", "team/digits", "v3.1_a"),
        (f"oci://host/team/digits@{DIGEST}", "team/digits", DIGEST),
        (f"oci://host/digits:3@{DIGEST}", "digits", DIGEST),
    ],
)
def test_reference(text: str, name: str, tag: str) -> None:
    """A digest is preferred to a tag, as by other tools."""
    assert (reference(image(text)).name, reference(image(text)).tag) == (name, tag)
    assert str(image(text)) == text


@pytest.mark.parametrize("text", ["oci://host/digits", "oci://host/Digits:3", "oci://host/a:b:c", "oci://host/:3"])
def test_unusable_reference(text: str) -> None:
    """A tag or a digest is required: a name alone could be any version."""
    with pytest.raises(SpecError) as caught:
        reference(image(text))
    assert caught.value.code == "store.url"


def test_credentials_in_a_url_are_rejected() -> None:
    """Only a digest may follow an @."""
    for text in ("oci://me:secret@host/m:1", f"s3://bucket/m@{DIGEST}"):
        with pytest.raises(SpecError) as caught:
            location(text)
        assert "secret" not in caught.value.message


def test_image_is_not_changed() -> None:
    """Commands that write are rejected before a request is made."""
    with pytest.raises(SpecError) as caught:
        repogen.prune("m", keep=1, repository="oci://127.0.0.1:1/m:1")
    assert caught.value.code == "store.read-only"


@pytest.mark.full
def test_pushed_image(registry: str, source: Path, tmp_path: Path) -> None:
    """The image has the model repository in /models, and the same version has the same digest."""
    url = f"oci://{registry}/team/m"
    report = repogen.publish("m", 1, source=source, target=f"{url}:1")
    assert [version.published for version in report.versions] == [True]
    document = manifest(registry, "team/m", report.digest)
    (layer,) = document["layers"]
    with tarfile.open(fileobj=io.BytesIO(blob(registry, "team/m", layer["digest"]))) as archive:
        assert archive.getnames()[:3] == ["models", "models/m", "models/m/1"]
        assert "models/m/1/model.onnx" in archive.getnames()
    config = json.loads(blob(registry, "team/m", document["config"]["digest"]))
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    again = repogen.publish("m", 1, source=source, target=f"{url}:1")
    assert (again.digest, again.versions[0].published) == (report.digest, False)
    repogen.publish("m", 1, source=source, target=tmp_path / "other")
    assert repogen.publish("m", source=tmp_path / "other", target=f"{url}:copy").digest == report.digest
    with pytest.raises(PublishError) as caught:
        repogen.publish("m", 2, source=source, target=f"{url}:1")
    assert caught.value.code == "publish.exists"
    assert repogen.publish("m", 2, source=source, target=f"{url}:2").digest != report.digest


@pytest.mark.full
def test_commands_on_an_image(registry: str, source: Path, tmp_path: Path) -> None:
    """An image is read as a directory is; by its digest as well."""
    url = f"oci://{registry}/m:1"
    digest = repogen.publish("m", 1, source=source, target=url).digest
    assert repogen.verify(url).findings == ()
    (model,) = repogen.versions(repository=url).models
    assert (str(model.path), model.served) == (f"{url}/m", (1,))
    assert repogen.diff("m", 2, repository=source, against=f"oci://{registry}/m@{digest}").after.version == 1
    report = repogen.publish("m", source=f"oci://{registry}/m@{digest}", target=tmp_path / "copy")
    assert (str(report.source), report.versions[0].number) == (f"oci://{registry}/m@{digest}", 1)
    original, copy = (root / "m" / "1" for root in (source, tmp_path / "copy"))
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == {
        path.name: path.read_bytes() for path in original.iterdir()
    }


@pytest.mark.full
def test_missing_image_and_registry(registry: str, source: Path) -> None:
    """The messages name the image, and no temporary directory."""
    for url, code in ((f"oci://{registry}/none:1", "store.no-image"), ("oci://127.0.0.1:1/m:1", "store.request")):
        with pytest.raises(RepogenError) as caught:
            repogen.verify(url)
        assert caught.value.code == code
        with pytest.raises(RepogenError) as caught:
            repogen.publish("m", source=url, target=source)
        assert caught.value.code == code


@pytest.mark.full
def test_credentials_of_docker(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from Docker's configuration; without them, access is denied."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with oci_registry(password=True) as host:
        url = f"oci://{host}/m:1"
        for attempt in (lambda: repogen.verify(url), lambda: repogen.publish("m", source=source, target=url)):
            with pytest.raises(PublishError) as caught:
                attempt()
            assert caught.value.code == "store.denied"
        secret = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        (tmp_path / ".docker").mkdir()
        (tmp_path / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": secret}}}))
        assert repogen.publish("m", source=source, target=url).versions[0].published
        assert repogen.verify(url).findings == ()


@pytest.mark.full
def test_image_of_another_tool(registry: str, source: Path, tmp_path: Path) -> None:
    """Layers of a base image are ignored, a later layer replaces files, and layers may be compressed."""
    repogen.publish("m", 1, source=source, target=tmp_path / "repo")
    layers = []
    base = [("etc/passwd", b"root"), ("models/m/1/model.onnx", b"old")]
    files = [(f"./models/{path.relative_to(tmp_path / 'repo')}", path) for path in (tmp_path / "repo").rglob("*.*")]
    new = [(name, path.read_bytes()) for name, path in files if path.is_file()]
    with Registry(reference(image(f"oci://{registry}/built:1"))) as host:
        for number, content in enumerate((base, new)):
            path = tmp_path / f"layer{number}"
            write_archive(path, content)
            host.upload(path)
            layers.append(describe(path, f"{LAYER}+gzip"))
        (tmp_path / "config").write_bytes(b"{}")
        host.upload(tmp_path / "config")
        config = describe(tmp_path / "config", CONFIG)
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        host.put_manifest(json.dumps(document).encode())
    assert repogen.verify(f"oci://{registry}/built:1").findings == ()


def write_archive(path: Path, files: list[tuple[str, bytes]]) -> None:
    """Write a compressed archive."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("models/m/../../../etc/x", tarfile.REGTYPE),
        ("models/../x", tarfile.REGTYPE),
        ("models/" + "x/" * 2000, tarfile.DIRTYPE),
        ("models/m/link", tarfile.SYMTYPE),
        ("models/m/link", tarfile.LNKTYPE),
        ("models/m/pipe", tarfile.FIFOTYPE),
        ("models/m/.wh.model.onnx", tarfile.REGTYPE),
    ],
)
def test_hostile_layer(tmp_path: Path, name: str, kind: bytes) -> None:
    """Only regular files with plain names are written."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "layer", "w") as archive:
        archive.addfile(info)
    (tmp_path / "models").mkdir()
    with pytest.raises(PublishError) as caught:
        extract(tmp_path / "layer", tmp_path / "models", reference(image("oci://host/m:1")), Contents())
    assert caught.value.code == "store.image"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["layer", "models"]


def test_layer_that_expands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small layer with very large files is rejected before they are written."""
    monkeypatch.setattr(oci, "_MAX_SMALL_LAYER_BYTES", 2**20)
    write_archive(tmp_path / "layer", [("models/m/1/model.onnx", bytes(2**22))])
    (tmp_path / "models").mkdir()
    with pytest.raises(PublishError) as caught:
        extract(tmp_path / "layer", tmp_path / "models", reference(image("oci://host/m:1")), Contents())
    assert (caught.value.code, list((tmp_path / "models").iterdir())) == ("store.image", [])


def test_file_larger_than_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed layer can have files that are larger than itself."""
    write_archive(tmp_path / "layer", [("models/m/1/model.onnx", bytes(2**20))])
    (tmp_path / "models").mkdir()
    monkeypatch.setattr("repogen.files.paths.shutil.disk_usage", lambda _: SimpleNamespace(free=2**19))
    with pytest.raises(PublishError, match="1048576 bytes, and the disk of") as caught:
        extract(tmp_path / "layer", tmp_path / "models", reference(image("oci://host/m:1")), Contents())
    assert (caught.value.code, list((tmp_path / "models").iterdir())) == ("store.copy", [])


def test_full_disk_is_not_a_malformed_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of the disk."""
    write_archive(tmp_path / "layer", [("models/m/1/model.onnx", bytes(2**20))])
    (tmp_path / "models").mkdir()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.onnx")
    monkeypatch.setattr(oci, "_copy", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left on device"):
        extract(tmp_path / "layer", tmp_path / "models", reference(image("oci://host/m:1")), Contents())


def header(name: str, kind: bytes, size: int = 0) -> bytes:
    """Return the header of a member, whose size may be negative."""
    info = tarfile.TarInfo(name)
    info.type = kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size.to_bytes(12, "big", signed=True)
    block[124] |= 0x80
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def record(text: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """Return a record before a member's header."""
    return header("x", kind, len(text)) + text.ljust(-(-len(text) // 512) * 512, b"\0")


FILE = header("models/m", tarfile.REGTYPE)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(header("x", tarfile.XHDTYPE, 2**40), id="large-record"),
        pytest.param(header("x", tarfile.GNUTYPE_LONGNAME, -512) + bytes(2**20), id="negative-record"),
        pytest.param(header("models/m", tarfile.REGTYPE, -512), id="negative-file"),
        pytest.param(record(b"11 size=-1\n") + FILE, id="negative-size"),
        pytest.param(record(b"a\0", tarfile.GNUTYPE_LONGNAME) * 1500 + FILE, id="many-records"),
        pytest.param(record(b"models/" + b"a/" * 1900, tarfile.GNUTYPE_LONGNAME) + FILE, id="deep"),
        pytest.param(record(b"9" * 5000 + b" a=b\n") + FILE, id="long-number"),
        pytest.param(record(b"22 GNU.sparse.map=x,y\n") + FILE, id="not-numbers"),
        pytest.param(header("models/m", tarfile.REGTYPE, 6000) + bytes(512), id="truncated"),
        pytest.param(
            record(b"".join(b"12 k%03d=abc\n" % number for number in range(200)), tarfile.XGLTYPE) + FILE,
            id="records-for-all",
        ),
    ],
)
def test_hostile_headers(tmp_path: Path, content: bytes) -> None:
    """Headers of an archive exhaust neither memory nor the stack, and are reported."""
    (tmp_path / "models").mkdir()
    (tmp_path / "layer").write_bytes(content + bytes(1024))
    with pytest.raises(PublishError) as caught:
        extract(tmp_path / "layer", tmp_path / "models", reference(image("oci://host/m:1")), Contents())
    assert caught.value.code == "store.image"


def test_limits_are_those_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small layers do not expand more than one."""
    monkeypatch.setattr(oci, "_MAX_SMALL_LAYER_BYTES", 2**20)
    write_archive(tmp_path / "layer", [("models/m/1/model.onnx", bytes(2**19 + 1))])
    (tmp_path / "models").mkdir()
    contents, target = Contents(), reference(image("oci://host/m:1"))
    extract(tmp_path / "layer", tmp_path / "models", target, contents)
    with pytest.raises(PublishError, match="files that are too large"):
        extract(tmp_path / "layer", tmp_path / "models", target, contents)


@contextmanager
def hostile_registry(
    status: int, headers: dict[str, str], body: bytes, answers: dict[str, tuple[int, dict[str, str]]] | None = None
) -> Iterator[tuple[str, list[str | None]]]:
    """Run a registry that gives every request one response; yield its address and the credentials that it received.

    A response is closed after the body, whatever its length is said to be. ``answers`` have the status and the headers
    for some paths.
    """
    credentials: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            credentials.append(self.headers.get("Authorization"))
            own_status, own_headers = (answers or {}).get(self.path, (status, headers))
            self.send_response(own_status)
            for name, value in ({"Content-Length": str(len(body))} | own_headers).items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = respond  # noqa: N815 - names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", credentials
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_layers_larger_than_the_disk(tmp_path: Path) -> None:
    """No layer is requested: a registry can announce any size."""
    layers = [{"mediaType": LAYER, "digest": DIGEST, "size": 2**61}] * 2
    body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers}).encode()
    with hostile_registry(200, {}, body) as (host, _), pytest.raises(PublishError) as caught:
        pull(reference(image(f"oci://{host}/m:1")), tmp_path / "models", tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("store.copy", 7)
    assert "4611686018427387904 bytes, and the disk of" in caught.value.message
    assert [path.name for path in tmp_path.rglob("*")] == ["models"]


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {}, bytes(2**23)),
        (200, {"Content-Length": "100"}, b"{}"),
        (401, {"WWW-Authenticate": "Bearer"}, b""),
        (401, {"WWW-Authenticate": 'Bearer realm="http://[",service="x"'}, b""),
        (403, {}, b""),
    ],
)
def test_invalid_response(status: int, headers: dict[str, str], body: bytes) -> None:
    """One that is too large or incomplete, or that does not specify where to get a token."""
    with (
        hostile_registry(status, headers, body) as (host, _),
        pytest.raises(PublishError) as caught,
        Registry(reference(image(f"oci://{host}/m:1"))) as registry,
    ):
        registry.layers()
    assert caught.value.code in {"store.request", "store.denied"}


def test_upload_without_a_location(tmp_path: Path) -> None:
    """The registry accepts it, but does not specify where to."""
    (tmp_path / "file").write_bytes(b"x")
    with (
        hostile_registry(202, {}, b"") as (host, _),
        pytest.raises(PublishError) as caught,
        Registry(reference(image(f"oci://{host}/m:1"))) as registry,
    ):
        registry.upload(tmp_path / "file")
    assert caught.value.code == "store.request"


def test_response_is_not_unpacked() -> None:
    """A registry cannot make a response expand: one that is compressed is rejected."""
    bomb = gzip.compress(bytes(2**25))
    with (
        hostile_registry(200, {"Content-Encoding": "gzip"}, bomb) as (host, _),
        pytest.raises(PublishError, match="encoded as 'gzip'"),
    ):
        Registry(reference(image(f"oci://{host}/m:1")))


def test_credentials_are_sent_to_the_registry_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that names another host for an upload does not get the credentials sent there."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with (
        hostile_registry(201, {}, b"") as (other, received),
        hostile_registry(202, {"Location": f"http://{other}/upload", "WWW-Authenticate": "Basic"}, b"") as (host, sent),
    ):
        with Registry(reference(image(f"oci://{host}/m:1"))) as registry:
            registry._client.auth.set_basic_auth("user", "secret")  # noqa: SLF001 - as docker login
            registry.upload(tmp_path / "file")
        assert (sent[-1] is not None, received) == (True, [None])


@pytest.mark.parametrize("status", [401, 403])
def test_password_is_not_sent_where_a_redirect_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The store of a registry's blobs names itself as the server that issues tokens."""
    headers: dict[str, str] = {}
    with hostile_registry(status, headers, b"") as (store, received):
        headers["WWW-Authenticate"] = f'Bearer realm="http://{store}/token",service="x"'
        redirect = (307, {"Location": f"http://{store}/blob"})
        error = denied_access(tmp_path, monkeypatch, {"/v2/": (200, {}), "/v2/m/manifests/1": redirect})
    assert (error.code, set(received)) == ("store.denied", {None})


@pytest.mark.parametrize("realm", ["http://{}/token", "{}/token"])
def test_realm_is_that_of_the_first_challenge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, realm: str) -> None:
    """Another one, of a response for one image, is not used."""
    with hostile_registry(200, {}, b'{"token": "x"}') as (other, received):
        answers = {
            path: (401, {"WWW-Authenticate": f'Bearer realm="{url}",service="x"'})
            for path, url in {"/v2/": "http://127.0.0.1:9/token", "/v2/m/manifests/1": realm.format(other)}.items()
        }
        error = denied_access(tmp_path, monkeypatch, answers)
    assert (error.code, received) == ("store.denied", [])


@pytest.mark.parametrize(
    "host",
    [
        "auth.example.com",
        "192.0.2.1",
        "localhost:1@192.0.2.1",
        "127.0.0.1.example.com",
        "192.0.2.1:1\\@127.0.0.1",
        "192.0.2.1\\\\@127.0.0.1:5000",
    ],
)
def test_password_is_not_sent_without_tls_to_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """A registry on this machine needs no TLS, but the token server that it names does."""
    with hostile_registry(200, {}, b'{"token": "x"}') as (proxy, received):
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        challenge = f'Bearer realm="http://{host}/token",service="x"'
        answers = {path: (401, {"WWW-Authenticate": challenge}) for path in ("/v2/", "/v2/m/manifests/1")}
        error = denied_access(tmp_path, monkeypatch, answers)
    assert (error.code, received) == ("store.denied", [])


@pytest.mark.parametrize("challenge", ["Basic", 'Bearer realm="http://127.0.0.1:9/token",service="x"'])
def test_password_is_not_sent_to_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, challenge: str) -> None:
    """Any user can listen on a port of this machine while the registry does not run."""
    answers = {path: (401, {"WWW-Authenticate": challenge}) for path in ("/v2/", "/v2/m/manifests/1")}
    os.seteuid(65534)  # owner of the sockets from here on
    try:
        registry = hostile_registry(200, {}, b"", answers)
        host, received = registry.__enter__()
    finally:
        os.seteuid(0)
    try:
        error = denied_access_to(host, tmp_path, monkeypatch)
    finally:
        registry.__exit__(None, None, None)
    assert (error.code, set(received)) == ("store.foreign-registry", {None})


def test_invalid_token() -> None:
    """The client decodes what the server of the tokens sends."""
    answers: dict[str, tuple[int, dict[str, str]]] = {}
    with hostile_registry(200, {}, b"[" * 100_000, answers) as (host, _):
        challenge = f'Bearer realm="http://{host}/token",service="x",scope="repository:m:pull"'
        answers |= {path: (401, {"WWW-Authenticate": challenge}) for path in ("/v2/", "/v2/m/manifests/1")}
        with (
            Registry(reference(image(f"oci://{host}/m:1"))) as registry,
            pytest.raises(PublishError, match="RecursionError"),
        ):
            registry.digest()


def test_token_server_on_another_port_gets_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS, the port could belong to another user."""
    with hostile_registry(200, {}, b'{"token": "x"}') as (other, received):
        challenge = f'Bearer realm="http://{other}/token",service="x"'
        answers = {path: (401, {"WWW-Authenticate": challenge}) for path in ("/v2/", "/v2/m/manifests/1")}
        error = denied_access(tmp_path, monkeypatch, answers)
    assert (error.code, received) == ("store.denied", [])


def denied_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, dict[str, str]]]
) -> PublishError:
    """Return the error of reading an image of a registry that Docker has a password for.

    Args:
        tmp_path: Of the test.
        monkeypatch: The same.
        answers: The status and the headers for each path.
    """
    with hostile_registry(200, {}, b"", answers) as (host, _):
        return denied_access_to(host, tmp_path, monkeypatch)


def denied_access_to(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishError:
    """Return the error of reading an image of a registry at a host and port."""
    auth = b64encode(b"user:secret").decode()
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(PublishError) as caught, Registry(reference(image(f"oci://{host}/m:1"))) as registry:
        registry.layers()
    return caught.value


def test_nothing_is_sent_without_tls() -> None:
    """A registry with TLS cannot have credentials sent without it."""
    session = Session()
    oci._limit(session, "https://host/v2/", HTTPAdapter())  # noqa: SLF001 - a registry with TLS needs a certificate
    with pytest.raises(InvalidSchema):
        session.get("http://127.0.0.1:9/token")


@pytest.mark.full
def test_command(registry: str, source: Path) -> None:
    """The text has the digest; `--json` as well."""
    command = ["publish", "m", "--from", str(source), "--to", f"oci://{registry}/command:1"]
    result = CliRunner().invoke(main, [*command, "--dry-run"])
    assert (result.exit_code, "would be packed" in result.output) == (0, True), result.output
    with pytest.raises(HTTPError):
        manifest(registry, "command", "1")
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, "sha256:" in result.output) == (0, True), result.output
    document = json.loads(CliRunner().invoke(main, [*command, "--json"]).output)
    assert (document["format"], document["versions"][0]["published"]) == ("oci", False)
