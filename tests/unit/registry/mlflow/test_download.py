"""Models of MLflow as sources: which version a URI means, and what is downloaded."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from repogen.artifacts.tracking import Tracking
from repogen.errors import SourceError, TrackingError
from repogen.registry.mlflow.access import fetch_model, pin_model
from repogen.registry.mlflow.download import download_model, pinned_uri
from repogen.registry.mlflow.uri import is_pinned

from .conftest import Stage, built, report

if TYPE_CHECKING:
    from pathlib import Path

    from repogen.registry.mlflow.client import Connection


@pytest.fixture
def kept(store: Connection, track: Any, stage: Stage) -> str:
    """Register two versions, the second a champion; return the model's name."""
    name = f"kept-{uuid.uuid4().hex[:8]}"
    for factor in (1.0, 2.0):
        staged = stage(name, factor)
        track(staged.name).log(staged, built(staged), report(staged), "", staged.repository)
    store.client.set_registered_model_alias(name, "champion", "2")
    return name


@pytest.mark.parametrize(
    ("uri", "pinned"),
    [
        ("models:/net/3", True),
        ("models:/m-0123456789abcdef0123456789abcdef", True),
        ("runs:/abc/model", True),
        ("models:/net@champion", False),
        ("models:/net/Production", False),
        ("models:/net/latest", False),
    ],
)
def test_what_always_means_the_same(uri: str, *, pinned: bool) -> None:
    """An alias may move; a version's number does not."""
    assert is_pinned(uri) is pinned


def test_an_alias_is_the_version_that_it_points_to(store: Connection, kept: str) -> None:
    """When it moves, the URI changes, and so does the build."""
    assert pinned_uri(store, f"models:/{kept}@champion") == f"models:/{kept}/2"
    store.client.set_registered_model_alias(kept, "champion", "1")
    assert pin_model(store.tracking, f"models:/{kept}@champion") == f"models:/{kept}/1"


def test_a_version_s_files_are_downloaded(store: Connection, kept: str, tmp_path: Path) -> None:
    """All of them, as they were logged: one that repogen made is a model of the onnx flavor."""
    (tmp_path / "there").mkdir()
    fetched = fetch_model(store.tracking, f"models:/{kept}@champion", tmp_path / "there")
    assert {"MLmodel", "model.onnx", "manifest.json"} <= {path.name for path in fetched.iterdir()}


def test_a_run_s_artifact_is_downloaded(store: Connection, kept: str, tmp_path: Path) -> None:
    """By its path in the run."""
    (tmp_path / "there").mkdir()
    with_file = store.client.get_model_version(kept, "1").run_id
    (tmp_path / "net.onnx").write_bytes(b"graph")
    store.client.log_artifact(with_file, str(tmp_path / "net.onnx"), "mine")
    fetched = download_model(store, f"runs:/{with_file}/mine", tmp_path / "there")
    assert (fetched / "net.onnx").read_bytes() == b"graph"


@pytest.mark.parametrize("what", ["@nobody", "/99", "/latest", "-x@champion", "-x/1"])
def test_what_is_not_there_is_told(store: Connection, kept: str, tmp_path: Path, what: str) -> None:
    """A model, a version, an alias, a stage: each with the URI."""
    with pytest.raises(SourceError) as caught:
        fetch_model(store.tracking, f"models:/{kept}{what}", tmp_path)
    assert caught.value.code == "source.mlflow"
    assert f"models:/{kept}{what}" in caught.value.message


def test_a_run_that_is_not_there(store: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Or one without such an artifact."""
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(SourceError, match="MLflow has no runs:/") as caught:
        download_model(store, f"runs:/{'0' * 32}/model", tmp_path)
    assert caught.value.code == "source.mlflow"


def test_a_server_that_is_down(tmp_path: Path) -> None:
    """Told within seconds, as everywhere."""
    nowhere = Tracking("http://127.0.0.1:9", "repogen", register=True, root=tmp_path)
    with pytest.raises(TrackingError) as caught:
        fetch_model(nowhere, "models:/net/1", tmp_path)
    assert caught.value.code == "tracking.unreachable"
