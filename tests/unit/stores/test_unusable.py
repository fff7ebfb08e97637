"""Each command on a repository that it cannot use: a clear message, the right exit code, and nothing is changed.

The repositories: one that repogen did not build, damaged ones, an empty one, one that does not exist, one without
access, and one whose store goes away. They are in a directory, in the example's store, and in S3, GCS and Azure.
"""

from __future__ import annotations

import base64
import http.client
import os
import shutil
import threading
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

import repogen
from repogen.api import registry as api
from repogen.artifacts.file_names import MANIFEST_FILE
from repogen.cli.group import main
from repogen.errors import PublishError
from repogen.files.url import RepositoryUrl, location
from repogen.stores.open import open_store
from tests.support.published import Publisher
from tests.support.simulated_registry import SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

STORES = ["local", "dir", *(pytest.param(name, marks=pytest.mark.full) for name in ("s3", "gs", "az"))]
URLS = STORES[1:]
SPEC = """\
models:
  m:
    source: {factory: "models.py:build"}
    inputs: {x: {dtype: float32, shape: [batch, 4]}}
    outputs: [y]
    dims: {batch: {min: 1, max: 8}}
"""


@dataclass(frozen=True)
class Place:
    """What a command line names.

    Attributes:
        repository: The path or URL of the repository.
        directory: A directory for other files: a good repository `good` with version 1 of model m, and a spec.
        registry: The model registry, with versions 1 and 2 of model m; `champion` points to version 1.
    """

    repository: str
    directory: Path
    registry: SimulatedRegistry

    @property
    def good(self) -> str:
        """The path of the good repository."""
        return str(self.directory / "good" / "repo")

    def command(self, name: str) -> list[str]:
        """Return the arguments of a command."""
        repository = ["--repository", self.repository]
        address = ["--server", f"unix:{self.directory}/no-server"]
        return {
            "versions": ["versions", *repository],
            "diff": ["diff", "m", *repository],
            "deploy": ["deploy", "m", *address, *repository],
            "rollback": ["rollback", "m", *repository],
            "prune": ["prune", "--keep", "0", *repository],
            "verify": ["verify", self.repository],
            "publish to": ["publish", "m", "--from", self.good, "--to", self.repository],
            "publish from": ["publish", "m", "--from", self.repository, "--to", str(self.directory / "copy" / "repo")],
            "package": [
                *("publish", "m", "--from", self.repository, "--to", str(self.directory / "m.tar.gz")),
                *("--format", "sagemaker"),
            ],
            "build": ["build", str(self.directory / "repogen.yaml"), *repository, "--no-smoke", "--no-track"],
            "plan": ["plan", str(self.directory / "repogen.yaml"), *repository, "--no-track"],
            "check": ["check", self.repository, "--isolated"],
            "smoke": ["smoke", self.repository],
            "sync": ["sync", "--alias", "champion", *repository],
            "report": ["report", self.repository, "--output", str(self.directory / "report.html")],
            "view": ["view", "m", *repository, "--no-browser"],
            "serve": ["serve", self.repository],
            "bench": ["bench", "m", *repository],
            "tune": ["tune", "m", "--spec", str(self.directory / "repogen.yaml"), *repository, "--no-track"],
        }[name]

    def run(self, name: str) -> Result:
        """Run a command."""
        return CliRunner().invoke(main, self.command(name))

    def content(self) -> dict[str, bytes]:
        """Return the files of the repository, except for locks and claims."""
        place = location(self.repository)
        if isinstance(place, RepositoryUrl):
            store = open_store(place)
            content = {each.key: store.read(each.key, 10**6) for each in store.list("")}
        else:
            files = (path for path in sorted(place.rglob("*")) if path.is_file())
            content = {str(path.relative_to(place)): path.read_bytes() for path in files}
        return {key: value for key, value in content.items() if not key.endswith((".repogen.lock", ".claim.json"))}


@pytest.fixture
def place(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return the place of an unusable repository, next to a good repository, a spec, and a registry."""
    directory = tmp_path / "work"
    Publisher(directory / "good" / "repo").publish("m", b"good")
    (directory / "repogen.yaml").write_text(SPEC, encoding="utf-8")
    (directory / "models.py").write_text("def build(): raise RuntimeError\n", encoding="utf-8")
    registry = SimulatedRegistry(tmp_path / "registry")
    for number in (1, 2):
        registry.register(version_of_bytes(tmp_path / f"registered-{number}", "m", b"r%d" % number))
    registry.point("m", "champion", 1)
    monkeypatch.setattr(api, "open_registry", lambda *_: registry)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "scratch").mkdir()
    return Place(url, directory, registry)


def _foreign(repository: Path) -> None:
    """A model of another tool."""
    (repository / "m" / "1").mkdir(parents=True)
    (repository / "m" / "1" / "model.onnx").write_bytes(b"theirs")
    (repository / "m" / "config.pbtxt").write_text('name: "m" backend: "onnxruntime"\n', encoding="utf-8")


def _built(repository: Path) -> None:
    local = Publisher(repository)
    for number in (1, 2):
        local.publish("m", b"w%d" % number)
    (repository / ".repogen.lock").unlink(missing_ok=True)
    shutil.rmtree(repository.parent / f"stage-of-{repository.name}")


def _damaged_manifest(repository: Path) -> None:
    _built(repository)
    (repository / "m" / "2" / MANIFEST_FILE).write_text("{", encoding="utf-8")


def _damaged_file(repository: Path) -> None:
    _built(repository)
    (repository / "m" / "2" / "model.onnx").write_bytes(b"w")


def _damaged_config(repository: Path) -> None:
    _built(repository)
    (repository / "m" / "config.pbtxt").write_text('name: "m', encoding="utf-8")


def put(place: Place, prepare: Callable[[Path], None]) -> None:
    """Create a repository in the place, in a store with the tools of the store."""
    target = location(place.repository)
    if not isinstance(target, RepositoryUrl):
        prepare(target)
        return
    local, store = place.directory / "prepared" / "models", open_store(target)
    if not local.exists():
        prepare(local)
    paths = sorted((path for path in local.rglob("*") if path.is_file()), key=lambda path: path.name == MANIFEST_FILE)
    for path in paths:
        store.upload(path, f"{target.key}/{path.relative_to(local).as_posix()}", lambda _: None)


# exit code and a part of the output, by condition and command; commands that are not here work, or need a server
EXPECTED: dict[str, dict[str, tuple[int, str]]] = {
    "foreign": {
        "versions": (0, "repogen did not build"),
        "diff": (2, "no version"),
        "deploy": (2, "was not built by repogen"),
        "rollback": (7, "no version below 1 that repogen built"),
        "prune": (0, "0 versions deleted"),
        "verify": (1, "repogen did not build it: it has no manifest.json"),
        "publish to": (7, "repogen did not build it"),
        "publish from": (7, "only verified versions are published"),
        "package": (7, "only verified versions are published"),
        "build": (7, "--adopt m"),
        "plan": (0, "was not built by repogen"),
        "check": (1, "model.onnx"),
        "sync": (7, "contains directories, but no repogen.json"),
        "report": (0, "report.html"),
    },
    "damaged manifest": {
        "versions": (0, "manifest.json"),
        "diff": (0, "manifest"),
        "deploy": (7, "m/2/manifest.json: Invalid JSON"),
        "verify": (1, "m/2/manifest.json: Invalid JSON"),
        "publish to": (7, "the newest version 2 is damaged"),
        "publish from": (7, "cannot be published"),
        "package": (7, "cannot be published"),
        "build": (7, "is damaged"),
        "plan": (0, "can't be read"),
        "check": (1, "manifest.json"),
        "sync": (7, "is written by `repogen build`"),
        "report": (0, "report.html"),
    },
    "damaged file": {
        "versions": (0, "2"),
        "diff": (0, "model.onnx"),
        "deploy": (7, "model.onnx has 1 bytes, not 2"),
        "verify": (1, "model.onnx has 1 bytes, not 2"),
        "publish from": (7, "model.onnx has 1 bytes, not 2"),
        "package": (7, "model.onnx has 1 bytes, not 2"),
        "check": (1, "model.onnx"),
        "sync": (7, "is written by `repogen build`"),
    },
    "damaged config": {
        "versions": (0, "config.pbtxt"),
        "diff": (0, ""),
        "deploy": (5, "config.pbtxt"),
        "rollback": (7, "config.pbtxt"),
        "prune": (0, "config.pbtxt"),
        "verify": (1, "config.pbtxt"),
        "publish to": (7, "was edited"),
        "publish from": (2, "config.pbtxt"),
        "package": (2, "config.pbtxt"),
        "plan": (0, "config.pbtxt"),
        "check": (1, "config.pbtxt"),
        "sync": (7, "is written by `repogen build`"),
    },
}
EMPTY = {
    "versions": (0, "no models"),
    "diff": (2, "has no model m"),
    "deploy": (2, "has no model m"),
    "rollback": (2, "has no model m"),
    "prune": (0, "0 versions deleted"),
    "verify": (2, "has no models"),
    "publish from": (2, "has no model m"),
    "package": (2, "has no model m"),
    "plan": (0, "no version is published"),
    "check": (2, "contains no model to check"),
    "smoke": (2, "has no models"),
    "report": (0, "report.html"),
    "view": (2, "has no model m"),
    "tune": (2, "has no model m"),
}
"""Of a directory; a store has no empty directories."""
PREPARE = {
    "foreign": _foreign,
    "damaged manifest": _damaged_manifest,
    "damaged file": _damaged_file,
    "damaged config": _damaged_config,
}


@pytest.mark.parametrize("condition", EXPECTED)
@pytest.mark.parametrize("url", STORES, indirect=True)
def test_unusable_repository(place: Place, condition: str) -> None:
    """Nothing is changed, and nothing else is written, not even by commands that describe what is wrong."""
    put(place, PREPARE[condition])
    before = place.content()
    for name, (code, words) in EXPECTED[condition].items():
        require(place, name, code, words)
        assert place.content() == before, name


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_empty_repository(place: Place) -> None:
    """A directory without models, and a bucket without objects below the URL."""
    is_local = "://" not in place.repository
    if is_local:
        location(place.repository).mkdir(parents=True)
    for name, (code, words) in EMPTY.items():
        if is_local or name == "plan":
            require(place, name, code, words)
        else:
            require(place, name, 2, f"{place.repository} does not exist")
        assert place.content() == {}, name
    for name in ("publish to", "prune"):  # what the empty repository is for
        assert place.run(name).exit_code == 0


def require(place: Place, name: str, code: int, words: str) -> str:
    """Require the exit code of a command, and words in its output; and that it leaves no files; return the output."""
    result = place.run(name)
    assert (result.exit_code, words in result.output, "Traceback" in result.output) == (code, True, False), (
        f"{name}: {result.exit_code} {result.output}"
    )
    assert not (place.directory / "copy").exists()
    assert not (place.directory / "m.tar.gz").exists()
    left = {path.name for path in (place.directory.parent / "scratch").iterdir()}
    assert left <= {".ses"}  # the session ID that ONNX Runtime writes when it is imported
    return str(result.output)


ALL = [
    *("versions", "diff", "deploy", "rollback", "prune", "verify", "publish to", "publish from", "package", "build"),
    *("plan", "check", "smoke", "sync", "report", "view", "serve", "bench", "tune"),
]


@pytest.mark.parametrize("url", URLS, indirect=True)
def test_missing_bucket(place: Place) -> None:
    """It is not created."""
    scheme = place.repository.partition(":")[0]
    missing = replace(place, repository=f"{scheme}://missing-bucket/models")
    for name in ALL:
        require(missing, name, 2, f"the bucket {scheme}://missing-bucket does not exist" if scheme != "dir" else "")


@pytest.fixture
def without_access(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Use credentials that the store rejects; return a word that must not be printed."""
    secret = "5ecre7"  # noqa: S105 - a test's
    if url.startswith("az:"):
        text = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
        key = text.partition("AccountKey=")[2].partition(";")[0]
        wrong = base64.b64encode(secret.encode() * 8).decode()
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text.replace(key, wrong))
        yield wrong
        return
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    for number in (b"0", b"inf"):  # moto's requests without authentication
        request = Request(f"{endpoint}/moto-api/reset-auth", number, {"Content-Type": "text/plain"}, method="POST")  # noqa: S310 - moto
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
            assert answer.status == HTTPStatus.OK
        if number == b"0":
            yield secret


@pytest.mark.full
@pytest.mark.parametrize("url", ["s3", "az"], indirect=True)
def test_wrong_credentials(place: Place, without_access: str) -> None:
    """The message names where credentials are looked for, and not the credentials."""
    for name in ALL:
        output = require(place, name, 7, f"access to {place.repository.rpartition('/team')[0]} was denied")
        assert without_access not in output


def limit_requests(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the buckets of the example's store fail after a number of requests; return the requests that follow."""
    from repogen_example_plugin.store import DirectoryBucket  # type: ignore[import-not-found]  # noqa: PLC0415

    answered: list[str] = []
    failed: list[str] = []

    def limited(name: str, method: Any) -> Any:
        def request(*arguments: Any) -> Any:
            (answered if len(answered) < number else failed).append(name)
            if failed:
                raise PublishError("a request to dir://b failed: connection refused", code="store.request")
            return method(*arguments)

        return request

    for name in ("list", "read", "download", "upload", "create", "replace", "copy", "delete", "abort_uploads"):
        patch.setattr(DirectoryBucket, name, limited(name, getattr(DirectoryBucket, name)))
    return failed


@pytest.mark.parametrize("url", ["dir"], indirect=True)
@pytest.mark.parametrize("number", [0, 2])
def test_store_that_goes_away_at_the_beginning(place: Place, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command that accepts a URL."""
    put(place, _built)
    before = place.content()
    for name in ALL:
        with monkeypatch.context() as patch:
            assert not limit_requests(patch, number)
            require(place, name, 7, "connection refused")
        assert place.content() == before


COMPLETE = {
    "versions": 0,
    "diff": 0,
    "deploy": 6,
    "rollback": 0,
    "prune": 0,
    "verify": 0,
    "publish to": 0,
    "publish from": 0,
    "package": 0,
    "check": 1,
    "report": 0,
    "sync": 0,
}
"""Exit codes of the commands that end without a server; `deploy` reports that its server does not exist."""
WRITING = ("rollback", "prune", "publish to", "sync")


@pytest.mark.full
@pytest.mark.parametrize("url", ["dir"], indirect=True)
@pytest.mark.parametrize("name", COMPLETE)
def test_store_that_goes_away_midway(place: Place, name: str, buckets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each number of requests: what is served is the old or the new state, and a rerun completes.

    Of commands that only read, every fifth number is a case.
    """
    for number in range(0, 100, 1 if name in WRITING else 5):
        (buckets / f"b{number}").mkdir()
        each = replace(place, repository=f"dir://b{number}/models")
        prepare(each, name)
        before, old = each.content(), state(each)
        with monkeypatch.context() as patch:
            failed = limit_requests(patch, number)
            result = each.run(name)
        if not failed:
            assert (result.exit_code, number > 2) == (COMPLETE[name], True), result.output
            return
        assert (result.exit_code, "connection refused" in result.output) == (7, True), result.output
        if name not in WRITING:
            assert each.content() == before
        left = state(each)
        rerun = run_again(each, name, monkeypatch)
        if left == old or name == "publish to":  # a rollback that is complete would go back further
            assert rerun.exit_code == COMPLETE[name], rerun.output
        assert left in {old, state(each)}
        remove_results(each)
    raise AssertionError("more than 100 requests")


def prepare(place: Place, name: str) -> None:
    """Create what a command changes."""
    if name != "sync":
        put(place, _built)
        return
    place.registry.point("m", "champion", 1)
    assert place.run("sync").exit_code == 0
    place.registry.point("m", "champion", 2)


def state(place: Place) -> tuple[tuple[int, ...], ...]:
    """Return what is served; every file is verified."""
    assert repogen.verify(place.repository).findings == ()
    return tuple(model.served for model in repogen.versions(repository=place.repository).models)


def run_again(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run a command after the end of the leases of the claims that were left: it takes them over."""
    with monkeypatch.context() as patch:
        patch.setattr("repogen.stores.claim.LEASE_SECONDS", 0.0)
        return place.run(name)


def remove_results(place: Place) -> None:
    """Remove what a command wrote elsewhere."""
    shutil.rmtree(place.directory / "copy", ignore_errors=True)
    for name in ("m.tar.gz", "report.html"):
        (place.directory / name).unlink(missing_ok=True)


class Proxy(ThreadingHTTPServer):
    """Forwards a number of requests to a server of S3; then it closes every connection without a response."""

    def __init__(self, endpoint: str) -> None:
        """Listen on a free port."""
        super().__init__(("127.0.0.1", 0), Forwarder)
        self.target = urlsplit(endpoint).netloc
        self.left = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """The endpoint of the clients."""
        return f"http://127.0.0.1:{self.server_port}"


class Forwarder(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the request to the server, and its response to the client."""
        with self.server.lock:
            self.server.left -= 1
            if self.server.left < 0:
                self.close_connection = True
                return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(self.server.target, timeout=60)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "date", "server"}:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


@pytest.fixture
def proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Return a server between the clients and S3."""
    assert url.startswith("s3:")
    server = Proxy(os.environ["AWS_ENDPOINT_URL"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.full
@pytest.mark.parametrize("url", ["s3"], indirect=True)
@pytest.mark.parametrize("name", ["versions", "deploy", "rollback", "prune", "verify", "publish to", "publish from"])
def test_server_of_s3_that_goes_away_midway(
    place: Place, proxy: Proxy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are closed without a response, after the retries of the library."""
    monkeypatch.setattr("s3fs.S3FileSystem.retries", 2)
    for number in (1, 6):
        each = replace(place, repository=f"{place.repository}-{number}")
        put(each, _built)
        old = state(each)
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy.url)
            proxy.left = number
            result = each.run(name)
        assert (result.exit_code, "failed: " in result.output) == (7, True), result.output
        assert state(each) == old
        assert run_again(each, name, monkeypatch).exit_code == COMPLETE[name]
        remove_results(each)
