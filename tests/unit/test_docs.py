"""Every code has a page."""

from __future__ import annotations

import re
from pathlib import Path

from repogen.explain import codes as explained_codes

ROOT = Path(__file__).resolve().parents[2]
EXPLAINED = r"(?:source|export|validate|parity|config|worker)\.[a-z-]+"

NO_CODES = {"worker.log", "config.json", "config.pbtxt", "source.spm", "parity.cases"}  # files, a metric


def test_every_error_code_has_a_page() -> None:
    """And every page is about a code that exists."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "repogen").rglob("*.py")))
    codes = set(re.findall(rf'"({EXPLAINED})"', text)) - NO_CODES
    assert {code for code in explained_codes() if re.fullmatch(EXPLAINED, code)} == codes
