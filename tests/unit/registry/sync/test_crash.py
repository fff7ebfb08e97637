"""A sync that is killed or fails at any operation leaves a servable repository, and the next one completes."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from repogen.artifacts.progress import Silent
from repogen.artifacts.sync import SyncAction, SyncOptions
from repogen.registry.sync.sync import sync
from repogen.repository.layout import archive_dir
from tests.support.failing_disk import Failing

from .conftest import contents, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.simulated_registry import SimulatedRegistry

    from .conftest import Register

ROOT = Path(__file__).parents[4]
CHAMPION = SyncOptions("champion")
EDITED = 'name: "m"\nversion_policy { latest { num_versions: 1 } }\n'


@dataclass(frozen=True)
class Scenario:
    """The state of model ``m`` before and after a sync.

    Attributes:
        before: Registry version that the first sync serves; None when there is no first sync.
        after: Registry version that the second sync should serve; None when the alias is lost.
        operations: Operations of the second sync.
        prune: Whether the second sync prunes.
        edited_file: File in the repository that is overwritten between the two syncs.
        archived: Whether the model was in the archive between the two syncs.
    """

    before: int | None
    after: int | None
    operations: int
    prune: bool = False
    edited_file: str = ""
    archived: bool = False

    @property
    def options(self) -> SyncOptions:
        """Return the options of the second sync."""
        return SyncOptions("champion", prune=self.prune)


# In the registry, version 2 has inputs other than those of version 1, and does not batch.
SCENARIOS = {
    "first": Scenario(None, 1, 3),
    "next": Scenario(1, 2, 2),
    "next, pruned": Scenario(1, 2, 3, prune=True),
    "edited config": Scenario(1, 2, 1, edited_file="config.pbtxt"),
    "edited config, same version": Scenario(1, 1, 1, edited_file="config.pbtxt"),
    "damaged": Scenario(1, 1, 1, edited_file="1/model.onnx"),
    "lost alias": Scenario(1, None, 1),
    "lost alias, pruned": Scenario(1, None, 1, prune=True),
    "back": Scenario(1, 1, 1, archived=True),
    "back as the next": Scenario(1, 2, 3, archived=True),
    "back, damaged": Scenario(1, 1, 2, archived=True, edited_file="1/model.onnx"),
}
KILLS = [(name, at) for name, scenario in SCENARIOS.items() for at in range(scenario.operations + 1)]


@pytest.fixture
def between(registry: SimulatedRegistry, register: Register, repository: Path) -> Callable[[Scenario], None]:
    """Return a function that prepares registry and repository for the second sync of a scenario."""

    def prepare(scenario: Scenario) -> None:
        register("m", b"1")
        register("m", b"2", batch=0, shape=("batch", 5))
        if scenario.before is not None:
            registry.point("m", "champion", scenario.before)
            sync(registry, repository, CHAMPION, Silent())
        home = repository
        if scenario.archived:
            registry.point("m", "champion", None)
            sync(registry, repository, CHAMPION, Silent())
            home = archive_dir(repository)
        if scenario.edited_file:
            (home / "m" / scenario.edited_file).write_text(EDITED)
        registry.point("m", "champion", scenario.after)

    return prepare


@pytest.mark.parametrize(("name", "at"), KILLS)
def test_kill_at_any_operation(
    name: str,
    at: int,
    between: Callable[[Scenario], None],
    registry: SimulatedRegistry,
    repository: Path,
    tmp_path: Path,
) -> None:
    """After SIGKILL at any operation Triton serves the old or the new version, and a rerun completes."""
    scenario = SCENARIOS[name]
    between(scenario)
    pickled = tmp_path / "registry.pickle"
    pickled.write_bytes(pickle.dumps(registry))
    program = [sys.executable, "-m", "tests.unit.registry.sync.killed_sync", str(pickled), str(repository), str(at)]
    code = subprocess.run(program + ["prune"] * scenario.prune, cwd=ROOT, check=False).returncode

    completed = at == scenario.operations
    assert (0 if completed else -signal.SIGKILL) == code
    models = [path.name for path in repository.iterdir() if path.is_dir()] if repository.exists() else []
    if models and (completed or not scenario.edited_file):
        assert served(repository) in ({scenario.after} if completed else {scenario.before, scenario.after})
    assert models in ([], ["m"])
    assert bool(models) or scenario.before is None or scenario.archived or scenario.after is None

    sync(registry, repository, scenario.options, Silent())
    if scenario.after is None:
        assert not (repository / "m").exists()
    else:
        assert served(repository) == scenario.after
    assert not sync(registry, repository, scenario.options, Silent()).changed
    names = {path.name for path in repository.parent.iterdir()} - {"repo.unserved"}
    assert names == {"repo"}


def _models(root: Path) -> dict[str, bytes | None]:
    """Return the model files, without modification times and without an empty archive directory."""
    files = {name: content for name, (content, _) in contents(root).items() if "/" in name or "." not in name}
    return {name: content for name, content in files.items() if not name.endswith("repogen.json") and name != "repo"}


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("name", "at"), [(name, at) for name, at in KILLS if at < SCENARIOS[name].operations])
def test_full_disk_at_any_operation(
    name: str,
    at: int,
    between: Callable[[Scenario], None],
    registry: SimulatedRegistry,
    repository: Path,
    *,
    late: bool,
) -> None:
    """A full disk at any operation leaves every model unchanged, except for a version that is served."""
    scenario = SCENARIOS[name]
    between(scenario)
    before = _models(repository)
    report = sync(registry, repository, scenario.options, Silent(), Failing(at, late=late))
    assert [row.error.code for row in report.versions if row.error] == ["sync.write"]
    assert "No space left on device" in next(row.error.message for row in report.versions if row.error)
    if [row for row in report.versions if row.action is SyncAction.PUBLISHED]:
        assert served(repository) == scenario.after
    else:
        assert before == _models(repository)
