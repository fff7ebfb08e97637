"""A command that is suspended for longer than a lease, at any point, neither loses nor damages what others publish."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import Mock

import pytest

import repogen
from repogen.artifacts.progress import Silent
from repogen.errors import RepogenError
from repogen.files.url import location
from repogen.repository.version_policy import serving_only
from repogen.stores.claim import Claim
from repogen.stores.commit import _ModelCommit
from repogen.stores.interface import ChangedError
from repogen.stores.open import open_store, open_url
from repogen.stores.pinned import can_name_deleted
from tests.support.published import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 60
STEPS = ("_claim", "_upload", "_write", "_prepare_removal", "_switch", "_delete")


@dataclass
class Suspended:
    """A command in a thread, which waits at a step until it is resumed."""

    command: Callable[[], Any]
    step: str
    at: int = 1
    before: bool = True
    errors: list[RepogenError] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _resumed: threading.Event = field(default_factory=threading.Event)
    _calls: int = 0

    def __enter__(self) -> Self:
        """Run the command up to the step."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._stopped.wait(SECONDS)
        return self

    def __exit__(self, *_error: object) -> None:
        """Resume it, and wait until it ends."""
        self._resumed.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def wait(self) -> None:
        """Wait, if this is the step."""
        self._calls += 1
        if self._calls == self.at:
            self._stopped.set()
            assert self._resumed.wait(SECONDS)

    def is_current(self) -> bool:
        """Return whether this thread runs the command."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            self.command()
        except RepogenError as error:
            self.errors.append(error)
        finally:
            self._stopped.set()


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Suspended]:
    """Return a function that makes a command wait before or after a step; a claim is taken over immediately."""
    monkeypatch.setattr("repogen.stores.claim.LEASE_SECONDS", 0.0)
    commands: list[Suspended] = []

    def wait(step: str, *, before: bool) -> None:
        for each in commands:
            if (each.step, each.before) == (step, before) and each.is_current():
                each.wait()

    def waiting(step: str) -> Any:
        function = getattr(_ModelCommit, step)

        def call(self: Any, *arguments: Any) -> Any:
            wait(step, before=True)
            result = function(self, *arguments)
            wait(step, before=False)
            return result

        return call

    for step in STEPS:
        monkeypatch.setattr(_ModelCommit, step, waiting(step))

    def prepare(command: Callable[[], Any], step: str, **options: Any) -> Suspended:
        commands.append(Suspended(command, step, **options))
        return commands[-1]

    return prepare


def publishing(directory: Path, target: str, weights: bytes) -> Callable[[], Any]:
    """Return a function that publishes a version with these weights."""
    publisher = Publisher(directory / weights.decode() / "repo")
    publisher.publish(weights=weights)
    return lambda: repogen.publish("m", source=publisher.repository, target=target)


def state(target: str) -> tuple[list[int], tuple[int, ...]]:
    """Return the versions and those that are served; every file is verified."""
    assert repogen.verify(target).findings == ()
    (model,) = repogen.versions("m", repository=target).models
    return sorted(each.version for each in model.versions), model.served


def left(buckets: Path) -> set[str]:
    """Return the entries of the repository and of the model's directory."""
    root = buckets / "b" / "team" / "models"
    return {path.name for path in root.iterdir()} | {path.parent.name for path in (root / "m").glob("*/*")}


@pytest.mark.parametrize("first", [False, True], ids=["next", "first"])
@pytest.mark.parametrize(
    ("step", "at", "before"), [("_upload", 1, True), ("_write", 2, True), ("_write", 3, False), ("_switch", 1, True)]
)
def test_suspended_publish(  # noqa: PLR0913 - fixtures and parameters
    tmp_path: Path, dir_url: str, buckets: Path, suspend: Any, step: str, at: int, *, before: bool, first: bool
) -> None:
    """Another one publishes the next number; when the suspended one goes on, it publishes the number after that."""
    count = 0 if first else 1
    if not first:
        publishing(tmp_path, dir_url, b"w0")()
    other = publishing(tmp_path, dir_url, b"w2")
    with suspend(publishing(tmp_path, dir_url, b"w1"), step, at=at, before=before) as suspended:
        other()
        assert state(dir_url)[1] == (count + 2,)
    assert suspended.errors == []
    versions = [*range(1, count + 1), count + 2, count + 3]
    assert state(dir_url) == (versions, (count + 3,))
    assert left(buckets) == {"m", "repogen.json", *map(str, versions)}


@pytest.mark.parametrize("first", [False, True], ids=["next", "first"])
def test_suspended_switch_precedes_the_other(tmp_path: Path, dir_url: str, suspend: Any, *, first: bool) -> None:
    """A publish that goes on while another one uploads the next number keeps its version."""
    count = 0 if first else 1
    if not first:
        publishing(tmp_path, dir_url, b"w0")()
    resources = ExitStack()
    with suspend(publishing(tmp_path, dir_url, b"w1"), "_switch") as suspended:
        other = resources.enter_context(suspend(publishing(tmp_path, dir_url, b"w2"), "_switch"))
    assert suspended.errors == []
    assert state(dir_url)[1] == (count + 1,)
    resources.close()
    assert other.errors == []
    served = state(dir_url)[1]
    assert served[0] > count + 1
    assert set(range(1, count + 2)) <= set(state(dir_url)[0])


@pytest.mark.parametrize("step", ["_delete", "_switch"])
def test_prune_and_rollback(tmp_path: Path, dir_url: str, suspend: Any, step: str) -> None:
    """Whichever is suspended, the served version exists; one of the commands fails, or the version is not there."""
    for weights in (b"w0", b"w1", b"w2"):
        publishing(tmp_path, dir_url, weights)()

    def prune() -> Any:
        return repogen.prune("m", repository=dir_url, keep=1, ignore_registry=True)

    def rollback() -> Any:
        return repogen.rollback("m", repository=dir_url, to=1)

    suspended, other = (prune, rollback) if step == "_delete" else (rollback, prune)
    with suspend(suspended, step) as command:
        if step == "_delete":
            with pytest.raises(RepogenError, match="no version 1"):
                other()
        else:
            other()
    assert [error.code for error in command.errors] == ([] if step == "_delete" else ["store.changed"])
    assert state(dir_url) == ([3], (3,))


def test_prune_that_ends_early(tmp_path: Path, dir_url: str, buckets: Path) -> None:
    """The next prune deletes the rest of the versions that config.pbtxt names; they are not listed in between."""
    for weights in (b"w0", b"w1", b"w2"):
        publishing(tmp_path, dir_url, weights)()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ModelCommit, "_delete", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            repogen.prune("m", repository=dir_url, keep=1, ignore_registry=True)
    assert state(dir_url) == ([3], (3,))
    assert {"1", "2"} <= left(buckets)
    publishing(tmp_path, dir_url, b"w3")()
    assert state(dir_url) == ([3, 4], (4,))
    assert left(buckets) == {"m", "repogen.json", "3", "4"}


def test_removal_of_a_model(tmp_path: Path, dir_url: str, suspend: Any) -> None:
    """A model that another command changed in the meantime is not removed."""
    publishing(tmp_path, dir_url, b"w0")()

    def remove() -> None:
        with open_url(location(dir_url), None, Silent()) as repository:  # type: ignore[arg-type]
            shutil.rmtree(repository.path / "m")
            repository.commit()

    with suspend(remove, "_prepare_removal") as command:
        publishing(tmp_path, dir_url, b"w1")()
    assert [error.code for error in command.errors] == ["store.changed"]
    assert state(dir_url) == ([1, 2], (2,))
    remove()
    assert repogen.versions(repository=dir_url).models == ()


def test_config_of_a_sync_names_deleted_versions(publisher: Publisher) -> None:
    """Its policy differs from that of the version, and no user edited it."""
    publisher.publish()
    model = publisher.repository / "m"
    assert can_name_deleted(model)
    own = (model / "1" / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(serving_only(own, 1))
    assert can_name_deleted(model)
    (model / "config.pbtxt").write_text(f"{own}\n# edited\n")
    assert not can_name_deleted(model)


def test_skipped_number_in_the_next_command(tmp_path: Path, dir_url: str, buckets: Path, suspend: Any) -> None:
    """A command that cannot take the next number itself fails once; the next one takes it."""
    publishing(tmp_path, dir_url, b"w0")()
    root = buckets / "b" / "team" / "models"
    with suspend(publishing(tmp_path, dir_url, b"w1"), "_upload"):
        with pytest.raises(ChangedError):
            Claim(open_store(location(dir_url)), "team/models/.repogen.m.2.claim.json").acquire(lambda: None)  # type: ignore[arg-type]
        assert [path.name for path in root.glob(".repogen.*")] == [".repogen.m.2.claim.json"]
        publishing(tmp_path, dir_url, b"w2")()
        assert state(dir_url) == ([1, 3], (3,))
        assert list(root.glob(".repogen.*")) == []


def test_sync_uses_the_number_of_the_registry(tmp_path: Path, dir_url: str, suspend: Any) -> None:
    """It takes the claim over, also one that marks a skipped number: a sync that was killed elsewhere is completed."""
    publishing(tmp_path, dir_url, b"w0")()
    key = "team/models/.repogen.m.2.claim.json"
    store = open_store(location(dir_url))  # type: ignore[arg-type]
    with suspend(publishing(tmp_path, dir_url, b"w1"), "_upload"):
        with pytest.raises(ChangedError):
            Claim(store, key).acquire(lambda: None)
        claim = Claim(store, key)
        claim.acquire(lambda: None, may_skip=False)
        assert claim.taken_over
        claim.release()
