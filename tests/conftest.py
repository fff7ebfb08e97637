"""The order of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; ``--no-loadscope-reorder`` keeps it so."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
