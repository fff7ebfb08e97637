"""One embedded Triton for all integration tests that only need some Triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from repogen.serving import server
from repogen.values.progress import Silent
from repogen.values.serving import ControlMode
from repogen.values.target import DEFAULT_RELEASE, targets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from repogen.values.serving import RunningTriton


@dataclass(frozen=True)
class SharedTriton:
    """A live embedded Triton in explicit mode, and the repository it serves; each test gives its models own names."""

    running: RunningTriton
    repository: Path


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTriton]:
    """Start one embedded Triton on an empty repository for the whole session (of one xdist worker)."""
    repository = tmp_path_factory.mktemp("triton") / "repository"
    repository.mkdir()
    embedded = server("embedded", targets()[DEFAULT_RELEASE], Silent())
    embedded.preflight()
    with embedded.running(repository, ControlMode.EXPLICIT) as running:
        yield SharedTriton(running, repository)
