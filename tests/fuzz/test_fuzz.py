"""Every reader returns or raises an error of repogen for any file, within limits on time and memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.run import describe, fuzz
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = float(os.environ.get("REPOGEN_FUZZ_SECONDS", "10"))
SEED = int(os.environ.get("REPOGEN_FUZZ_SEED", "0"))


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_any_file(name: str, tmp_path: Path) -> None:
    """Mutated inputs are read, or rejected with an error that has a message."""
    result = fuzz(TARGETS[name], SECONDS, SEED, tmp_path / "failures")
    assert not result.failures, describe(name, result)
    assert result.executions > len(TARGETS[name].seeds())
