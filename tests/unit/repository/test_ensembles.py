"""The models that an ensemble's steps name, as Triton serves them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from repogen.errors import ConfigError
from repogen.repository.ensembles import neighbor_at, unfit, unfit_users, with_steps
from tests.support.published import Publisher

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("", (3,)), ("version_policy { }", (3, 2, 1)), ("version_policy { specific { versions: [ 1, 7 ] } }", (1,))],
)
def test_neighbor_has_the_versions_that_are_served(tmp_path: Path, policy: str, expected: tuple[int, ...]) -> None:
    """A step pinned to a version that exists but is not served does not load."""
    for version in ("1", "2", "3"):
        (tmp_path / "m" / version).mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(policy, encoding="utf-8")
    assert neighbor_at(tmp_path / "m").versions == expected


@pytest.mark.parametrize("content", [b"\xff", b" " * (2**20 + 1), b"{"])
def test_neighbor_with_a_damaged_config(tmp_path: Path, content: bytes) -> None:
    """It is one error of the model that is synced or built, not the end of all of them."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_bytes(content)
    with pytest.raises(ConfigError):
        neighbor_at(tmp_path / "m")


OUTSIDE = ("..", "../outside", "m/../../outside")


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """Return what stages versions next to another repository."""
    return Publisher(tmp_path / "other")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose parent and sibling have a config.pbtxt as well."""
    for directory in (tmp_path, tmp_path / "outside", tmp_path / "repository" / "m"):
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text('input { name: "SECRET" } output { name: "y" }', encoding="utf-8")
    return tmp_path / "repository"


def steps(*names: str) -> str:
    """Return the config of an ensemble."""
    lines = (
        f'step {{ model_name: "{name}" model_version: -1 input_map {{ key: "x" value: "in" }} }}' for name in names
    )
    return f"ensemble_scheduling {{ {' '.join(lines)} }}"


@pytest.mark.parametrize("name", OUTSIDE)
def test_step_name_that_leaves_the_repository_is_not_a_model(repository: Path, name: str) -> None:
    """A sync or build must not compare an ensemble with a config.pbtxt elsewhere, nor name its tensors."""
    assert unfit(steps(name), "e", repository) == f"step 1 uses model {name!r}, which is not in the repository"


def test_models_with_their_steps(repository: Path) -> None:
    """Steps are followed inside of the repository only, and each once."""
    for name, config in (("e", steps("f", "f", "m", *OUTSIDE)), ("f", steps("e", "m", "missing"))):
        (repository / name).mkdir()
        (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    (repository.parent / "outside" / "config.pbtxt").write_text(steps("leaked"), encoding="utf-8")
    assert sorted(with_steps(repository, ["e"])) == sorted(["e", "f", "m", "missing", *OUTSIDE])


def test_config_that_cannot_be_read_has_no_steps(repository: Path) -> None:
    """Loading the model reports why; a FIFO is not opened."""
    os.mkfifo(repository / "fifo")
    (repository / "e").mkdir()
    (repository / "e" / "config.pbtxt").symlink_to(repository / "fifo")
    assert with_steps(repository, ["e", "missing"]) == ["missing", "e"]


def test_config_that_cannot_be_read_is_not_a_user_of_a_new_version(repository: Path, publisher: Publisher) -> None:
    """Triton does not load it before, either; the other ensembles are checked."""
    staged = publisher.stage("n")
    for name, config in (("damaged", b"ensemble_scheduling \xff"), ("e", steps("n").encode()), ("open", b"{")):
        (repository / name).mkdir()
        (repository / name / "config.pbtxt").write_bytes(config)
    assert list(unfit_users(repository, staged, ())) == ["e"]


def test_new_version_that_closes_a_cycle_does_not_fit(repository: Path) -> None:
    """An ensemble that uses it would crash the server of the repository."""
    for name, config in (("e", steps("m")), ("f", steps("e"))):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")
    assert "lead back" not in unfit(steps("m"), "e", repository)
    assert unfit(steps("f"), "e", repository) == "the steps of 'e' lead back to 'e'"
