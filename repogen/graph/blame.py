"""What other people's code says when it fails, fit for a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def first_line(error: BaseException, directory: Path) -> str:
    """Return the first line that ``error`` says, without the path of the ``directory`` it worked in."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].replace(f"{directory}/", "") if lines else type(error).__name__
