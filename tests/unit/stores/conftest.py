"""A bucket in a directory, through the store of the example plug-in, and a bucket of moto's S3."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from repogen import plugins
from tests.support.moto_s3 import create_bucket, s3_server
from tests.support.object_servers import azure_server, create_container, gcs_server
from tests.support.published import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parents[2] / "plugin_package"


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """Return what publishes into a local repository that does not exist yet."""
    return Publisher(tmp_path / "local" / "repo")


@pytest.fixture
def buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Register the example's store ``dir://``, and return the directory of its buckets, with the bucket `b`."""
    monkeypatch.syspath_prepend(PACKAGE)
    monkeypatch.setenv("EXAMPLE_BUCKETS", str(tmp_path / "buckets"))
    entry = EntryPoint("dir", "repogen_example_plugin.store:DirectoryStore", "repogen.stores")

    def with_example(group: str) -> list[EntryPoint]:
        return [*entry_points(group=group), *([entry] if group == entry.group else ())]

    monkeypatch.setattr(plugins, "entry_points", with_example)
    plugins.plugins.cache_clear()
    (tmp_path / "buckets" / "b").mkdir(parents=True)
    yield tmp_path / "buckets"
    plugins.plugins.cache_clear()
    for name in [name for name in sys.modules if name.startswith("repogen_example_plugin")]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def s3_environment() -> Iterator[dict[str, str]]:
    """Run one S3 server for the tests of a worker."""
    with s3_server() as environment:
        yield environment


@pytest.fixture(scope="session")
def azure_environment() -> Iterator[dict[str, str]]:
    """Run one Azurite for the tests of a worker."""
    with azure_server() as environment:
        yield environment


@pytest.fixture
def az_url(azure_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a repository in an empty container of Azure."""
    for name, value in azure_environment.items():
        monkeypatch.setenv(name, value)
    container = f"container-{uuid4().hex[:12]}"
    create_container(azure_environment, container)
    return f"az://{container}/team/models"


@pytest.fixture
def gs_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a repository in an empty bucket of Google's emulator."""
    with gcs_server("bucket") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield "gs://bucket/team/models"


@pytest.fixture
def local_url(tmp_path: Path) -> str:
    """Return the path of a local repository that does not exist yet."""
    return str(tmp_path / "target" / "models")


@pytest.fixture
def dir_url(buckets: Path) -> str:
    """Return the URL of a repository in an empty bucket of the example's store."""
    return f"dir://{next(buckets.iterdir()).name}/team/models"


@pytest.fixture(params=["dir", *(pytest.param(name, marks=pytest.mark.full) for name in ("s3", "gs", "az"))])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a repository in an empty bucket of each store."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def s3_url(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a repository in an empty bucket of S3."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{uuid4().hex[:12]}"
    create_bucket(s3_environment, bucket)
    return f"s3://{bucket}/team/models"
