"""Every command on a repository in a store does what it does on a local one: in a directory's store, and on S3."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import repogen
from repogen.artifacts.attestation import SigningKey, TrustedSigner
from repogen.cli.group import main
from repogen.errors import PublishError, RepogenError, SpecError
from repogen.files.url import location
from repogen.stores import claim
from repogen.stores.commit import _ModelCommit
from repogen.stores.open import open_store
from repogen.versions.view import graph_of
from tests.support.published import contents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.stores.interface import Store
    from repogen.versions.view import Graph
    from tests.support.published import Publisher


def store_of(url: str) -> Store:
    """Return the bucket of a URL."""
    place = location(url)
    return open_store(place)  # type: ignore[arg-type]


def publish(publisher: Publisher, url: str, weights: bytes, name: str = "m") -> int:
    """Publish a version locally, and from there to a store; return its number there."""
    publisher.publish(name, weights)
    return repogen.publish(name, source=publisher.repository, target=url).versions[0].number


def private_key(directory: Path) -> SigningKey:
    """Write a key to sign with."""
    key = ec.generate_private_key(ec.SECP256R1())
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (directory / "key.pem").write_bytes(key.private_bytes(*formats))
    return SigningKey(directory / "key.pem")


def keys(url: str) -> set[str]:
    """Return the keys below a URL."""
    prefix = url.partition("//")[2].partition("/")[2]
    return {each.key.removeprefix(f"{prefix}/") for each in store_of(url).list("")}


def config(url: str, name: str = "m") -> str:
    """Return the config.pbtxt of a model in a store."""
    return store_of(url).read(f"team/models/{name}/config.pbtxt", 10**6).decode()


VERSION = ("config.pbtxt", "golden.json", "golden.npz", "manifest.json", "model.onnx")


@pytest.mark.parametrize(
    "url", ["dir", "gs", *(pytest.param(name, marks=pytest.mark.full) for name in ("s3", "az"))], indirect=True
)
def test_life_of_a_model(publisher: Publisher, url: str) -> None:
    """Publish, list, verify, compare, roll back, release, prune, and publish back: each with the state of the store."""
    for number in (1, 2, 3):
        assert publish(publisher, url, b"w%d" % number) == number
        assert f"versions: [ {number} ]" in config(url)
    model = repogen.versions("m", repository=url).models[0]
    assert [(version.version, version.served) for version in model.versions] == [(3, True), (2, False), (1, False)]
    assert str(model.versions[0].path) == f"{url}/m/3"
    assert repogen.verify(url).findings == ()
    assert [file.path for file in repogen.diff("m", 1, 2, repository=url).files] == ["model.onnx"]
    report = repogen.rollback("m", repository=url)
    assert (report.before, report.after, str(report.repository)) == ((3,), (2,), url)
    assert config(url).startswith("# repogen: held at version 2\n")
    assert publish(publisher, url, b"w4") == 4
    assert repogen.versions("m", repository=url).models[0].served == (2,)
    repogen.rollback("m", repository=url, release=True)
    assert "versions: [ 4 ]" in config(url)
    deleted = [version.version for version in repogen.prune("m", keep=2, repository=url).deleted]
    assert deleted == [2, 1]
    assert keys(url) == {"repogen.json", "m/config.pbtxt", *(f"m/{n}/{file}" for n in (3, 4) for file in VERSION)}
    assert repogen.publish("m", 3, source=url, target=publisher.repository).versions[0].number == 5
    assert repogen.verify(publisher.repository).findings == ()


def test_report_and_view(publisher: Publisher, dir_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names the URL; the viewer has the bytes of the selected version; nothing is left behind."""
    for number in (1, 2):
        publish(publisher, dir_url, b"w%d" % number)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    rendered = repogen.report(dir_url, output=tmp_path / "report.html", results=tmp_path / "results")
    assert (str(rendered.repository), rendered.versions) == (dir_url, 2)
    assert dir_url in rendered.path.read_text()
    assert "scratch" not in rendered.path.read_text()
    graphs = []

    @contextmanager
    def open_viewer(graph: Graph, _port: int) -> Iterator[Mock]:
        graphs.append((graph.directory / "model.onnx").read_bytes())
        yield Mock(url="http://127.0.0.1/")

    monkeypatch.setattr(sys.modules[graph_of.__module__], "open_viewer", open_viewer)
    for model in ("m", "m@1"):
        result = CliRunner().invoke(main, ["view", model, "--repository", dir_url, "--no-browser", "--debug"])
        assert result.exit_code == 0, result.output
    assert graphs == [b"w2", b"w1"]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_serve_does_not_poll_a_copy(dir_url: str) -> None:
    """The error comes before anything is downloaded."""
    result = CliRunner().invoke(main, ["serve", dir_url, "--poll"])
    assert (result.exit_code, "without --poll" in result.output) == (2, True)


def test_unchanged_version_is_not_published_again(publisher: Publisher, url: str) -> None:
    """The store is not written."""
    publish(publisher, url, b"w")
    before = {each.key: each.tag for each in store_of(url).list("")}
    report = repogen.publish("m", source=publisher.repository, target=url)
    assert [version.published for version in report.versions] == [False]
    assert {each.key: each.tag for each in store_of(url).list("")} == before


def test_dry_run_writes_nothing(publisher: Publisher, url: str) -> None:
    """Of each command that would write."""
    publish(publisher, url, b"w1")
    publish(publisher, url, b"w2")
    before = {each.key: each.tag for each in store_of(url).list("")}
    publisher.publish("m", b"w3")
    repogen.publish("m", source=publisher.repository, target=url, dry_run=True)
    repogen.rollback("m", repository=url, dry_run=True)
    repogen.prune("m", keep=1, repository=url, dry_run=True)
    assert {each.key: each.tag for each in store_of(url).list("")} == before


def test_several_models_and_a_breaking_change(publisher: Publisher, url: str) -> None:
    """A change of the signature, which needs an exchange of directories on a disk, is one write of config.pbtxt."""
    publish(publisher, url, b"w1", "a")
    publish(publisher, url, b"w1", "b")
    publisher.publish("a", b"w2", shape=("batch", 5))
    with pytest.raises(PublishError, match="inputs or outputs differ"):
        repogen.publish("a", source=publisher.repository, target=url)
    report = repogen.publish("a", source=publisher.repository, target=url, allow_breaking=True)
    assert report.versions[0].number == 2
    assert [model.served for model in repogen.versions(repository=url).models] == [(2,), (1,)]
    assert repogen.verify(url).findings == ()


@pytest.mark.parametrize("has_signature", [False, True])
def test_interrupted_signature_of_a_version_that_is_not_served(
    publisher: Publisher, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_signature: bool
) -> None:
    """A killed `sign` left a claim, so that the next publish took the version for an interrupted one and deleted it."""
    publish(publisher, url, b"w1")
    publish(publisher, url, b"w2")
    repogen.rollback("m", repository=url)
    key = private_key(tmp_path)
    if has_signature:
        repogen.sign("m", 2, key=key, repository=url)
    before = keys(url)
    monkeypatch.setattr(claim, "_has_ended", lambda _content: True)
    with monkeypatch.context() as killed:
        killed.setattr(_ModelCommit, "_upload", Mock(side_effect=KeyboardInterrupt))
        killed.setattr(_ModelCommit, "_undo", Mock())
        with pytest.raises(KeyboardInterrupt):
            repogen.sign("m", 2, key=key, repository=url)
    assert keys(url) == before
    assert publish(publisher, url, b"w3") == 3
    assert before < keys(url)
    assert repogen.verify(url).findings == ()


def test_version_that_is_pruned_is_not_signed(
    publisher: Publisher, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its files remains."""
    publish(publisher, url, b"w1")
    publish(publisher, url, b"w2")
    key = private_key(tmp_path)
    upload = _ModelCommit._upload  # noqa: SLF001 - between two requests of a command

    def late(commit: _ModelCommit) -> None:
        monkeypatch.setattr(_ModelCommit, "_upload", upload)
        assert [version.version for version in repogen.prune("m", keep=1, repository=url).deleted] == [1]
        upload(commit)

    monkeypatch.setattr(_ModelCommit, "_upload", late)
    with pytest.raises(PublishError, match="changed"):
        repogen.sign("m", 1, key=key, repository=url)
    assert not {key for key in keys(url) if key.startswith("m/1/")}


def test_required_signature_of_a_version_in_the_store(publisher: Publisher, url: str, tmp_path: Path) -> None:
    """A version with the same manifest is only accepted as already published if it is signed."""
    key = private_key(tmp_path)
    pem = serialization.load_pem_private_key((tmp_path / "key.pem").read_bytes(), None).public_key()
    public = pem.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    signer = TrustedSigner(tmp_path / "key.pub")
    publisher.publish("m", b"w1")
    repogen.sign("m", key=key, repository=publisher.repository)

    def publish_signed() -> tuple[int, bool]:
        (version,) = repogen.publish("m", source=publisher.repository, target=url, signer=signer).versions
        return version.number, version.published

    assert [publish_signed() for _ in range(2)] == [(1, True), (1, False)]
    (tmp_path / "altered").write_bytes(b"xx")
    store_of(url).upload(tmp_path / "altered", "team/models/m/1/model.onnx", lambda _: None)
    assert publish_signed() == (2, True)
    assert publish_signed() == (2, False)


def test_altered_object_is_reported(publisher: Publisher, url: str, tmp_path: Path) -> None:
    """`verify` reads every byte; a version that differs is not served again or published."""
    publish(publisher, url, b"w1")
    publish(publisher, url, b"w2")
    (tmp_path / "altered").write_bytes(b"xx")
    store_of(url).upload(tmp_path / "altered", "team/models/m/1/model.onnx", lambda _: None)
    assert [finding.message for finding in repogen.verify(url).findings] == ["model.onnx has a different sha256"]
    for command in (
        lambda: repogen.publish("m", 1, source=url, target=tmp_path / "other"),
        lambda: repogen.verify(url, models=["none"]),
    ):
        before = contents(publisher.repository)
        with pytest.raises(RepogenError):
            command()
        assert contents(publisher.repository) == before


def test_edited_config_is_kept(publisher: Publisher, url: str) -> None:
    """As in a local repository: what a user wrote is not replaced, and the error names the URL."""
    publish(publisher, url, b"w1")
    store = store_of(url)
    tag = next(each.tag for each in store.list("team/models/m/config.pbtxt"))
    store.replace("team/models/m/config.pbtxt", config(url).encode() + b"# mine\n", tag)
    with pytest.raises(PublishError, match="was edited after repogen wrote it") as caught:
        publish(publisher, url, b"w2")
    assert f"{url}/m/config.pbtxt" in caught.value.message
    assert config(url).endswith("# mine\n")
    assert not [key for key in keys(url) if key.startswith((".repogen", "m/2"))]


def test_missing_repository_and_bucket(publisher: Publisher, url: str) -> None:
    """Reading commands report them as for a directory, and a bucket is not created."""
    with pytest.raises(SpecError, match=f"{url} does not exist"):
        repogen.versions(repository=url)
    scheme = url.partition(":")[0]
    publisher.publish()
    for command in (
        lambda: repogen.versions(repository=f"{scheme}://missing-bucket/models"),
        lambda: repogen.publish("m", source=publisher.repository, target=f"{scheme}://missing-bucket/models"),
    ):
        with pytest.raises(SpecError) as caught:
            command()
        assert (caught.value.code, caught.value.exit_code) == ("store.no-bucket", 2)


def test_command_line(publisher: Publisher, url: str) -> None:
    """Commands take URLs where they take directories, and their reports have URLs."""
    publisher.publish()
    run = CliRunner().invoke
    result = run(main, ["publish", "m", "--from", str(publisher.repository), "--to", url, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["target"]) == (0, url)
    assert json.loads(run(main, ["versions", "--repository", url, "--json"]).stdout)["repository"] == url
    assert run(main, ["verify", url]).exit_code == 0
    result = run(main, ["check", url, "--isolated"])
    assert (result.exit_code, f"{url}/m/1/model.onnx" in result.output) == (1, True)
    assert run(main, ["check", "--fix", url, "--isolated"]).exit_code == 2


def test_tune(publisher: Publisher, dir_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search has a copy of the served version; its report, which it writes itself, names the URL."""
    from repogen.tune import tune as search  # noqa: PLC0415 - imports Optuna

    for number in (1, 2):
        publish(publisher, dir_url, b"w%d" % number)
    (tmp_path / "models.py").touch()
    (tmp_path / "repogen.yaml").write_text(
        "models: {m: {source: {factory: 'models.py:build'}, outputs: [y], "
        "inputs: {x: {dtype: float32, shape: [batch, 4]}}, dims: {batch: {min: 1, max: 8}}}}\n",
        encoding="utf-8",
    )
    requests = []

    def recorded(request: search.TuneRequest, _progress: object) -> None:
        content = [(request.repository / "m" / str(number) / "model.onnx").read_bytes() for number in (1, 2)]
        requests.append((str(request.place), content))

    monkeypatch.setattr(search, "tune", recorded)
    repogen.tune("m", spec=tmp_path / "repogen.yaml", repository=dir_url, track=False)
    assert requests == [(dir_url, [b"\0\0", b"w2"])]
