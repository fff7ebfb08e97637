"""The model card: the front matter of README.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*$", re.DOTALL | re.MULTILINE)
_TAG = re.compile(r"^pipeline_tag:\s*[\"']?([\w-]+)[\"']?\s*$", re.MULTILINE)


def pipeline_tag(directory: Path) -> str:
    """Return the task that a model card names; empty when there is no card, or it names none."""
    path = directory / "README.md"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    front = _FRONT_MATTER.search(text)
    tag = _TAG.search(front[1]) if front else None
    return tag[1] if tag else ""
