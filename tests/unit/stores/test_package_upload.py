"""`repogen publish --format sagemaker` uploads the archive to an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import repogen
from repogen.cli.group import main
from repogen.errors import PublishError, SpecError
from repogen.files.url import location
from repogen.repository.digest import sha256_bytes
from repogen.stores.open import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.published import Publisher


def objects(url: str) -> dict[str, bytes]:
    """Return the objects of the bucket of a URL."""
    store = open_store(location(url))  # type: ignore[arg-type]
    return {each.key: store.read(each.key, 10**6) for each in store.list("")}


def test_archive(publisher: Publisher, url: str, tmp_path: Path) -> None:
    """The object has the bytes of a local archive; it is not replaced; a dry run writes nothing."""
    publisher.publish(weights=b"w1")
    repogen.publish("m", source=publisher.repository, target=tmp_path / "m.tar.gz", package_format="sagemaker")
    expected = (tmp_path / "m.tar.gz").read_bytes()
    target = f"{url}/m.tar.gz"
    repogen.publish("m", source=publisher.repository, target=target, package_format="sagemaker", dry_run=True)
    assert objects(url) == {}
    report = repogen.publish("m", source=publisher.repository, target=target, package_format="sagemaker")
    assert (str(report.target), report.digest) == (target, f"sha256:{sha256_bytes(expected)}")
    assert objects(url) == {"team/models/m.tar.gz": expected}
    publisher.publish(weights=b"w2")
    with pytest.raises(PublishError, match=f"{target} exists") as caught:
        repogen.publish("m", source=publisher.repository, target=target, package_format="sagemaker")
    assert (caught.value.code, objects(url)) == ("publish.exists", {"team/models/m.tar.gz": expected})


def test_archive_of_a_version_in_a_store(publisher: Publisher, url: str, tmp_path: Path) -> None:
    """From one URL to another; the bytes are those of the same version in a directory."""
    publisher.publish(weights=b"w1")
    repogen.publish("m", source=publisher.repository, target=url)
    repogen.publish("m", source=publisher.repository, target=tmp_path / "m.tar.gz", package_format="sagemaker")
    command = ["publish", "m", "--from", url, "--to", f"{url}.packages/m.tar.gz", "--format", "sagemaker"]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, f"{url}.packages/m.tar.gz" in result.output) == (0, True), result.output
    assert objects(url)["team/models.packages/m.tar.gz"] == (tmp_path / "m.tar.gz").read_bytes()


def test_directory_of_azure_ml_is_not_an_object(publisher: Publisher, url: str) -> None:
    """`az ml` uploads a directory itself; nothing is written."""
    publisher.publish()
    with pytest.raises(SpecError, match="is not a directory") as caught:
        repogen.publish("m", source=publisher.repository, target=f"{url}/m", package_format="azureml")
    assert (caught.value.code, objects(url)) == ("publish.package-name", {})


def test_upload_that_fails(publisher: Publisher, dir_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are removed, and no object remains; a missing bucket is an error before the version is packed."""
    from repogen_example_plugin.store import DirectoryBucket  # type: ignore[import-not-found]  # noqa: PLC0415

    publisher.publish()
    with pytest.raises(SpecError) as missing:
        repogen.publish("m", source=publisher.repository, target="dir://none/m.tar.gz", package_format="sagemaker")
    assert missing.value.code == "store.no-bucket"
    aborted: list[str] = []

    def fail(*_arguments: object) -> None:
        raise PublishError("the store went away", code="store.request")

    monkeypatch.setattr(DirectoryBucket, "upload", fail)
    monkeypatch.setattr(DirectoryBucket, "abort_uploads", lambda _, prefix: aborted.append(prefix))
    with pytest.raises(PublishError, match="went away"):
        repogen.publish("m", source=publisher.repository, target=f"{dir_url}/m.tar.gz", package_format="sagemaker")
    assert (aborted, objects(dir_url)) == (["team/models/m.tar.gz"], {})
