"""What a command reads from a store: the number of requests does not depend on the number of versions."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import repogen
from repogen.artifacts.progress import Silent
from repogen.deploy.plan import plan
from repogen.errors import PublishError
from repogen.files.url import location
from repogen.stores.open import open_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.published import Publisher

METHODS = ("list", "read", "download", "upload", "create", "replace", "copy", "delete")


class Requests:
    """The calls of a bucket: their number by method, and the keys of those that transfer an object."""

    def __init__(self) -> None:
        """Begin with none."""
        self.number: Counter[str] = Counter()
        self.keys: dict[str, list[str]] = {"read": [], "download": [], "upload": []}

    def clear(self) -> None:
        """Forget the calls so far."""
        self.__init__()  # type: ignore[misc]

    def count(self, name: str, method: Any) -> Any:
        """Return a method that counts its calls."""

        def counted(bucket: Any, *arguments: Any) -> Any:
            self.number[name] += len(arguments[0]) if name == "delete" else 1
            if name in self.keys:
                self.keys[name].append(arguments[1 if name == "upload" else 0])
            return method(bucket, *arguments)

        return counted


@pytest.fixture
def requests(buckets: Path, monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Count the requests to the buckets of the example's store."""
    from repogen_example_plugin.store import DirectoryBucket  # type: ignore[import-not-found]  # noqa: PLC0415

    assert buckets.is_dir()
    requests = Requests()
    for name in METHODS:
        monkeypatch.setattr(DirectoryBucket, name, requests.count(name, getattr(DirectoryBucket, name)))
    return requests


@pytest.fixture
def model(buckets: Path, dir_url: str) -> Path:
    """Return the directory of model m in the bucket of ``dir_url``."""
    assert dir_url == "dir://b/team/models"
    return buckets / "b" / "team" / "models" / "m"


def add_versions(model: Path, first: int, last: int) -> None:
    """Add copies of version 1, which are not served."""
    for number in range(first, last + 1):
        shutil.copytree(model / "1", model / str(number))


@pytest.mark.parametrize("versions", [2, 9])
def test_publish_reads_the_newest_and_the_served_version(
    versions: int, publisher: Publisher, dir_url: str, model: Path, requests: Requests
) -> None:
    """One listing of the repository; the claim; the files; config.pbtxt."""
    publisher.publish(weights=b"w1")
    repogen.publish("m", source=publisher.repository, target=dir_url)
    add_versions(model, 2, versions)
    publisher.publish(weights=b"w2")
    requests.clear()
    assert repogen.publish("m", source=publisher.repository, target=dir_url).versions[0].number == versions + 1
    small = ["config.pbtxt", *(f"{number}/{name}" for number in (1, versions) for name in SMALL)]
    assert sorted(requests.keys["read"]) == sorted(
        [*(f"team/models/m/{name}" for name in small), "team/models/m/config.pbtxt", "team/models/repogen.json"]
    )
    # the repository, the archive, claims; the claimed version; the version and config.pbtxt after the commit
    assert requests.number == {"list": 6, "read": 7, "upload": 5, "create": 1, "replace": 2, "delete": 1}
    assert repogen.verify(dir_url).findings == ()


SMALL = ("config.pbtxt", "manifest.json")


def test_older_versions_that_a_new_policy_serves(publisher: Publisher, dir_url: str) -> None:
    """Their manifests are read: they must fit the new config.pbtxt."""
    for number, batch in enumerate((0, 8, 8)):
        publisher.publish(weights=b"w%d" % number, batch=batch, shape=("batch", 4))
        repogen.publish("m", source=publisher.repository, target=dir_url, allow_breaking=True)
    other = type(publisher)(publisher.repository.with_name("other"))
    other.publish(weights=b"all", policy="all {}")
    with pytest.raises(PublishError, match="version 1: was published with max_batch_size 0") as caught:
        repogen.publish("m", source=other.repository, target=dir_url)
    assert caught.value.code == "publish.version-policy"


def test_old_version_that_is_held(publisher: Publisher, dir_url: str) -> None:
    """It is served, so it is read; the newest version is served after the release."""
    for number in range(4):
        publisher.publish(weights=b"w%d" % number)
        repogen.publish("m", source=publisher.repository, target=dir_url)
    repogen.rollback("m", 2, repository=dir_url)
    publisher.publish(weights=b"new")
    assert repogen.publish("m", source=publisher.repository, target=dir_url).versions[0].number == 5
    assert repogen.versions("m", repository=dir_url).models[0].served == (2,)
    repogen.rollback("m", repository=dir_url, release=True)
    assert repogen.versions("m", repository=dir_url).models[0].served == (5,)
    assert repogen.verify(dir_url).findings == ()


def planned(url: str, *, whole: bool = False) -> tuple[tuple[int, ...], ...]:
    """Plan a deploy of model m from a store; return the versions of each model."""
    with open_url(location(url), None, Silent(), older=()) as opened:  # type: ignore[arg-type]
        groups = plan(opened.path, ("m",), partial(opened.fetch_versions, whole=whole))
        opened.fetch_versions("m", (1,), whole=False)
        assert (opened.path / "m" / "1" / "golden.npz").read_bytes() == b"npz"
    return tuple(model.versions for group in groups for model in group)


def names(keys: list[str]) -> Iterator[str]:
    """Yield the paths of keys in model m."""
    return (key.removeprefix("team/models/m/") for key in keys)


def test_deploy_downloads_golden_tensors_only(publisher: Publisher, dir_url: str, requests: Requests) -> None:
    """Triton loads from the store; a version that was served before is tested after it was restored."""
    for number in (1, 2, 3):
        publisher.publish(weights=b"w%d" % number)
        repogen.publish("m", source=publisher.repository, target=dir_url)
    requests.clear()
    assert planned(dir_url) == ((3,),)
    golden = ("golden.json", "golden.npz")
    assert sorted(names(requests.keys["download"])) == [f"{number}/{name}" for number in (1, 3) for name in golden]
    assert "team/models/m/2/manifest.json" not in requests.keys["read"]
    requests.clear()
    assert planned(dir_url, whole=True) == ((3,),)
    assert {"3/model.onnx", "3/golden.npz"} <= {*names(requests.keys["download"])}


def test_object_that_is_newer_than_the_manifest_is_downloaded(
    publisher: Publisher, dir_url: str, model: Path, requests: Requests
) -> None:
    """Its bytes are compared, because the listing does not show that they are those of the manifest."""
    publisher.publish(weights=b"w1")
    repogen.publish("m", source=publisher.repository, target=dir_url)
    graph = model / "1" / "model.onnx"
    later = graph.stat().st_mtime + 60
    os.utime(graph, (later, later))
    requests.clear()
    assert planned(dir_url) == ((1,),)
    assert "1/model.onnx" in names(requests.keys["download"])
    graph.write_bytes(b"w2")
    os.utime(graph, (later, later))
    with pytest.raises(PublishError, match=r"model\.onnx has a different sha256") as caught:
        planned(dir_url)
    assert caught.value.code == "deploy.damaged"


def test_config_that_changes_while_the_version_is_claimed(
    publisher: Publisher, dir_url: str, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command rolls back: it is seen before the upload, and the checks are repeated with the new state."""
    from repogen.stores.claim import Claim  # noqa: PLC0415 - patched here only

    for number in (1, 2):
        publisher.publish(weights=b"w%d" % number)
        repogen.publish("m", source=publisher.repository, target=dir_url)
    publisher.publish(weights=b"w3")
    acquire = Claim.acquire
    others = iter([partial(repogen.rollback, "m", repository=dir_url)])

    def acquire_late(claim: Claim, wait: Any, **options: Any) -> None:
        acquire(claim, wait, **options)
        for other in others:
            other()

    monkeypatch.setattr(Claim, "acquire", acquire_late)
    requests.clear()
    assert repogen.publish("m", source=publisher.repository, target=dir_url).versions[0].number == 3
    assert repogen.versions("m", repository=dir_url).models[0].served == (1,)
    assert len(requests.keys["upload"]) == 5
