"""A registry in memory with versions of a few bytes, and helpers that read a synced repository as Triton does."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Protocol

import pytest

from repogen.artifacts.registry import EntryState
from repogen.repository.layout import model_dir
from repogen.repository.manifest import damaged_files, read_manifest
from tests.support.simulated_registry import CONFIG, SimulatedRegistry, version_of_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from repogen.artifacts.registry import RegistryEntry
    from repogen.artifacts.tensors import Dim

POLICY = re.compile(r"^version_policy: { specific: { versions: \[ (\d+) \] } }$", re.MULTILINE)


class Register(Protocol):
    """Registers a version of a few bytes."""

    def __call__(  # noqa: PLR0913 - one parameter per property of a version
        self,
        name: str = "m",
        weights: bytes = b"w",
        *aliases: str,
        batch: int = 8,
        shape: tuple[Dim, ...] = ("batch", 4),
        policy: str = "",
        labels: tuple[str, ...] = (),
        template: str = CONFIG,
        state: EntryState = EntryState.PUBLISHED,
        steps: Sequence[RegistryEntry] = (),
    ) -> RegistryEntry:
        """Register a version and return its entry."""


@pytest.fixture
def registry(tmp_path: Path) -> SimulatedRegistry:
    """Return an empty registry."""
    return SimulatedRegistry(tmp_path / "registry")


@pytest.fixture
def register(registry: SimulatedRegistry, tmp_path: Path) -> Register:
    """Return a function that registers versions in ``registry``."""
    roots = (tmp_path / "built" / str(n) for n in count())

    def add(  # noqa: PLR0913 - the same
        name: str = "m",
        weights: bytes = b"w",
        *aliases: str,
        batch: int = 8,
        shape: tuple[Dim, ...] = ("batch", 4),
        policy: str = "",
        labels: tuple[str, ...] = (),
        template: str = CONFIG,
        state: EntryState = EntryState.PUBLISHED,
        steps: Sequence[RegistryEntry] = (),
    ) -> RegistryEntry:
        version = version_of_bytes(
            next(roots), name, weights, batch=batch, shape=shape, policy=policy, labels=labels,
            template=ensemble(*(step.name for step in steps)) if steps else template,
            steps={step.name: step.content for step in steps},
        )  # fmt: skip
        return registry.register(version, *aliases, state=state)

    return add


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return the path of a repository that does not exist yet."""
    return tmp_path / "place" / "repo"


def ensemble(*steps: str, version: int = -1) -> str:
    """Return a config template of an ensemble whose steps form a chain from x to y."""
    names = ["x", *(f"y{number}" for number in range(1, len(steps))), "y"]
    texts = [
        f'{{{{ model_name: "{step}" model_version: {version} input_map {{{{ key: "x" value: "{names[number]}" }}}}'
        f' output_map {{{{ key: "y" value: "{names[number + 1]}" }}}} }}}}'
        for number, step in enumerate(steps)
    ]
    head = CONFIG.partition("instance_group")[0].replace('backend: "onnxruntime"', 'platform: "ensemble"')
    return head + "ensemble_scheduling {{ step [ " + ", ".join(texts) + " ] }}\n"


def contents(root: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return the files in and next to the repository with modification times, except the lock file."""
    return {
        str(path.relative_to(root.parent)): (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        for path in root.parent.rglob("*")
        if path.name != ".repogen.lock"
    }


def served(repository: Path, name: str = "m") -> int:
    """Return the only served version, and assert that config.pbtxt matches that version except for the policy."""
    model = model_dir(repository, name)
    config = (model / "config.pbtxt").read_text()
    (version,) = POLICY.findall(config)
    assert damaged_files(model / version, read_manifest(model / version)) == ()
    version_config = (model / version / "config.pbtxt").read_text()
    assert _without_policy(version_config) == _without_policy(config)
    return int(version)


def _without_policy(config: str) -> list[str]:
    return [line for line in config.splitlines() if line and not line.startswith("version_policy")]
