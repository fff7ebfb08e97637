"""What ``repogen doctor`` prints."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from repogen.reporting.text import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.environment import Check


def diagnosis_text(checks: Sequence[Check]) -> str:
    """Return a line a check, and what to do where something is missing."""
    rows = [
        ("ok" if c.ok and not (c.optional and c.remedy) else "-" if c.ok else "MISSING", c.name, c.found)
        for c in checks
    ]
    mends = [f"  {c.name}: {c.remedy}" for c in checks if not c.ok and c.remedy]
    text = table(("", "what", "found"), rows)
    if mends:
        return f"{text}\n\nto mend:\n" + "\n".join(mends)
    hints = [f"  {c.name}: {c.remedy}" for c in checks if c.remedy]
    return f"{text}\n\nready to build" + ("; optional:\n" + "\n".join(hints) if hints else "")


def diagnosis_json(checks: Sequence[Check]) -> str:
    """Return the checks as one document."""
    return json.dumps({"ok": all(c.ok for c in checks), "checks": [dataclasses.asdict(c) for c in checks]}, indent=2)
