"""Settings for all tests: their order, no time limits, and no results of other tests or builds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import settings

from repogen.build.cache import SIZE_VARIABLE

if TYPE_CHECKING:
    import pytest

settings.register_profile("repogen", deadline=None)  # no test depends on the speed of the machine
settings.load_profile("repogen")
os.environ[SIZE_VARIABLE] = "0"  # also for the processes that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; ``--no-loadscope-reorder`` keeps it so."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
