"""Publishes versions of a few bytes into a repository by the real code."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from repogen.artifacts.versions import ModelConfig, StagedVersion
from repogen.repository.manifest import read_manifest
from repogen.repository.publish import publish
from tests.support.simulated_registry import version_of_bytes

if TYPE_CHECKING:
    from pathlib import Path


class Publisher:
    """Publishes versions into one repository.

    Attributes:
        repository: The repository, which need not exist yet.
    """

    def __init__(self, repository: Path) -> None:
        """Stage next to ``repository``."""
        self.repository = repository
        self._roots = (repository.parent / f"stage-of-{repository.name}" / str(number) for number in count())

    def stage(self, name: str = "m", weights: bytes = b"w", **parts: Any) -> StagedVersion:
        """Return a staged version; ``parts`` are those of ``version_of_bytes``."""
        directory = version_of_bytes(next(self._roots), name, weights, **parts)
        manifest = read_manifest(directory)
        text = (directory / "config.pbtxt").read_text(encoding="utf-8")
        config = ModelConfig(name, text, manifest.max_batch_size, manifest.signature)
        return StagedVersion(name, directory.parent.parent, int(directory.name), config, manifest)

    def publish(self, name: str = "m", weights: bytes = b"w", **parts: Any) -> int:
        """Publish a version and return its number."""
        return publish(self.stage(name, weights, **parts), self.repository, breaking=True).version


def contents(root: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return the files in and next to a repository with modification times, except for the lock file."""
    return {
        str(path.relative_to(root.parent)): (path.read_bytes() if path.is_file() else None, path.lstat().st_mtime_ns)
        for path in sorted(root.parent.rglob("*"))
        if path.name != ".repogen.lock" and not path.is_symlink()
    }
