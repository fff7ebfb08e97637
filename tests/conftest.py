"""The order of the tests, and no cache of verified models: a test must not depend on what another one built."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from repogen.build.cache import SIZE_VARIABLE

if TYPE_CHECKING:
    import pytest

os.environ[SIZE_VARIABLE] = "0"  # also for the processes that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; ``--no-loadscope-reorder`` keeps it so."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
