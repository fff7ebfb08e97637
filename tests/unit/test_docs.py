"""The documentation knows what the code can say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = r"(?:source|export|validate|parity|config|worker)\.[a-z-]+"

NO_CODES = {"worker.log", "config.json", "config.pbtxt", "source.spm", "parity.cases"}  # files, a metric


def test_every_refusal_has_an_entry() -> None:
    """And every entry is of a code that there is."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "repogen").rglob("*.py")))
    codes = set(re.findall(rf'"({EXPLAINED})"', text)) - NO_CODES
    page = (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8")
    entries = set(re.findall(rf"`({EXPLAINED})`", "".join(re.findall(r"^### .*$", page, re.MULTILINE))))
    assert entries == codes
