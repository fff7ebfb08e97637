"""After a kill or an error at any operation, a fresh Triton serves the repository, and a rerun completes."""

from __future__ import annotations

import errno
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pytest

from repogen.errors import PublishError
from repogen.repository.filesystem import Disk
from repogen.repository.layout import versions
from repogen.repository.manifest import read_manifest
from repogen.repository.publish import Order, choose_order, publish
from repogen.repository.recovery import recover
from tests.support.failing_disk import Failing

if TYPE_CHECKING:
    from repogen.artifacts.tensors import Dim

    from .conftest import Served, Stage

PROGRAM = Path(__file__).with_name("killed_publish.py")


class Version(TypedDict, total=False):
    """Arguments of ``stage``."""

    weights: bytes
    batch: int
    shape: tuple[Dim, ...]
    policy: str
    labels: tuple[str, ...]
    warmup: bytes


LATEST_2 = "latest { num_versions: 2 }"
SCENARIOS: dict[str, tuple[list[Version], Version, Order | None, int]] = {
    # name: what is there, what comes, in which order, in how many operations
    "first": ([], {}, None, 3),
    "same config": ([{}], {"weights": b"2"}, Order.VERSION_ONLY, 1),
    "policy": ([{}, {}], {"policy": LATEST_2}, Order.VERSION_FIRST, 4),
    "raise": ([{}], {"batch": 32}, Order.VERSION_FIRST, 4),
    "lower": ([{}], {"batch": 0}, Order.CONFIG_FIRST, 4),
    "pinned": ([{}], {"policy": "specific { versions: [1, 2] }"}, Order.VERSION_FIRST, 4),
    "pinned and lower": ([{}], {"batch": 0, "policy": "specific { versions: 2 }"}, Order.SWAP, 1),
    "labeled": ([{}], {"labels": ("a", "b")}, Order.VERSION_FIRST, 5),
    "labeled otherwise": ([{"labels": ("a", "b")}], {"labels": ("c", "d")}, Order.VERSION_FIRST, 5),
    "labeled and lower": ([{"batch": 8}], {"batch": 0, "labels": ("a", "b")}, Order.CONFIG_FIRST, 5),
    "labeled the same": ([{"labels": ("a", "b")}], {"weights": b"2", "labels": ("a", "b")}, Order.VERSION_ONLY, 1),
    "labeled and breaking": ([{}], {"shape": ("batch", 5), "labels": ("a", "b")}, Order.SWAP, 1),
    "warmed up": ([{}], {"warmup": b"1"}, Order.VERSION_FIRST, 5),
    "warmed up otherwise": ([{"warmup": b"1"}], {"warmup": b"2"}, Order.VERSION_FIRST, 5),
    "warmed up and breaking": ([{"warmup": b"1"}], {"shape": ("batch", 5), "warmup": b"2"}, Order.SWAP, 1),
    "breaking": ([{}, {}], {"shape": ("batch", 5)}, Order.SWAP, 1),
    "lower, old misfit": ([{"shape": (1,)}, {}, {}], {"batch": 4, "policy": LATEST_2}, Order.CONFIG_FIRST, 4),
    "lower, old misfit in the window": ([{"shape": (1,)}, {}], {"batch": 4, "policy": LATEST_2}, Order.SWAP, 1),
}
KILLS = [(name, at) for name, (_, _, _, operations) in SCENARIOS.items() for at in range(operations + 1)]


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "first"])
def test_order(name: str, stage: Stage, repository: Path) -> None:
    """Each change uses the order that is safe at every moment."""
    before, after, expected, _ = SCENARIOS[name]
    for version in before:
        publish(stage(**version), repository, breaking=True)
    published = read_manifest(repository / "m" / str(len(before)))
    assert expected == choose_order(repository / "m", published, stage(**after))


@pytest.mark.parametrize(("name", "at"), KILLS)
def test_sigkill(name: str, at: int, stage: Stage, repository: Path, tmp_path: Path, served: Served) -> None:
    """After SIGKILL at any operation every served version fits config.pbtxt, and publishing again completes."""
    before, after, _, operations = SCENARIOS[name]
    for version in before:
        publish(stage(**version), repository, breaking=True)
    staged = stage(**after)
    (tmp_path / "staged.pickle").write_bytes(pickle.dumps(staged))
    command = [sys.executable, str(PROGRAM), str(tmp_path / "staged.pickle"), str(repository), str(at)]
    code = subprocess.run(command, check=False).returncode

    assert (0 if at == operations else -signal.SIGKILL) == code
    if before or at > 0:
        assert served(repository)
        assert recover(repository, "m")
        assert served(repository)
    number = publish(stage(**after), repository, breaking=True).version
    assert number == max(versions(repository / "m"))
    assert (number in served(repository)) or "specific" in staged.config.text  # a pin to 2 does not serve 3
    assert staged.config.text == (repository / "m" / "config.pbtxt").read_text()
    assert sorted(path.name for path in repository.iterdir()) == [".repogen.lock", "m", "repogen.json"]


def _contents(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if path.name != ".repogen.lock"
    }


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("name", "at"), [(name, at) for name, at in KILLS if at < SCENARIOS[name][3]])
def test_failure(name: str, at: int, stage: Stage, repository: Path, *, late: bool) -> None:
    """A full disk at any operation leaves the repository unchanged, byte for byte."""
    before, after, _, _ = SCENARIOS[name]
    for version in before:
        publish(stage(**version), repository, breaking=True)
    expected = _contents(repository)
    with pytest.raises(PublishError, match="No space left on device"):
        publish(stage(**after), repository, breaking=True, filesystem=Failing(at, late=late))
    assert expected == _contents(repository)


def test_failure_that_cannot_be_undone(stage: Stage, repository: Path) -> None:
    """A disk that fails from the rename on, in which the new version is: the message must not say it is unchanged."""

    class Broken(Disk):
        def rename(self, source: Path, target: Path) -> None:
            if not moved:
                super().rename(source, target)
            moved.append(target)
            raise OSError(errno.EIO, "Input/output error", str(source))

    moved: list[Path] = []
    with pytest.raises(PublishError, match="could not be undone: Input/output error") as caught:
        publish(stage(), repository, breaking=False, filesystem=Broken())
    assert (caught.value.code, "unchanged" in caught.value.hint) == ("publish.undo", False)
    assert (repository / "m" / "1").is_dir()
    assert publish(stage(), repository, breaking=False).version == 2
