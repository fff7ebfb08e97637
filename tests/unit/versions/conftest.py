"""A repository with versions of a few bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.published import Publisher

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """Return what publishes into a repository that does not exist yet."""
    return Publisher(tmp_path / "place" / "repo")
