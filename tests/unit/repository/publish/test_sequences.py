"""Properties of any sequence of publishes, some of them killed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repogen.errors import PublishError
from repogen.repository.filesystem import Disk
from repogen.repository.layout import versions
from repogen.repository.manifest import damaged_files, read_manifest
from repogen.repository.publish import publish
from repogen.repository.recovery import recover

if TYPE_CHECKING:
    from .conftest import Served, Stage


class Power(BaseException):
    """The power failed: cleanup fails as well."""


class Mortal(Disk):
    """The disk, until the operation number ``at``: then every operation fails, as after a kill."""

    def __init__(self, at: int) -> None:
        """Live for ``at`` operations."""
        self.left = at

    def _tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Power

    def rename(self, source: Path, target: Path) -> None:
        """Rename while alive."""
        self._tick()
        super().rename(source, target)

    def exchange(self, first: Path, second: Path) -> None:
        """Swap while alive."""
        self._tick()
        super().exchange(first, second)

    def write(self, path: Path, text: str) -> None:
        """Write while alive."""
        self._tick()
        super().write(path, text)

    def remove(self, path: Path) -> None:
        """Remove while alive."""
        self._tick()
        super().remove(path)


POLICIES = ("", "latest { num_versions: 2 }", "all {}", "specific { versions: [1, 2] }", "specific { versions: 3 }")
STEP = st.tuples(
    st.sampled_from([0, 4, 8]),
    st.sampled_from([4, 5]),
    st.sampled_from(POLICIES),
    st.booleans(),
    st.integers(min_value=0, max_value=6),
    st.booleans(),
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=1, max_size=6))
def test_sequences(
    steps: list[tuple[int, int, str, bool, int, bool]], stage: Stage, served: Served, tmp_path: Path
) -> None:
    """Versions stay intact, numbers increase, and the served versions fit the config at every moment."""
    repository = Path(tempfile.mkdtemp(dir=tmp_path))
    highest = 0
    for batch, size, policy, breaking, lives, recovers in steps:
        before = versions(repository / "m")
        staged = stage(batch=batch, shape=("batch", size), policy=policy)
        try:
            assert highest < publish(staged, repository, breaking=breaking, filesystem=Mortal(lives)).version
        except PublishError:
            assert before == versions(repository / "m")
        except Power:
            pass
        present = versions(repository / "m")
        assert set(before) <= set(present)
        highest = max(present, default=0)
        for version in present:
            directory = repository / "m" / str(version)
            assert damaged_files(directory, read_manifest(directory)) == ()
        if present:
            served(repository)
        if recovers:
            assert bool(present) == recover(repository, "m")


def test_simulated_disk_fails() -> None:
    """The simulation does fail."""
    with pytest.raises(Power):
        Mortal(0).remove(Path("never-there"))
