"""Rejects phrases that a US engineer would stumble over; part of ``make lint``.

``wording.txt`` has one regular expression per line, and what to write instead. A line that must keep such a phrase, for
example because it quotes another program, ends with ``wording: ok``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PHRASES = ROOT / "tools" / "wording.txt"
SUFFIXES = {".py", ".md", ".j2", ".yml", ".yaml", ".toml", ".txt", ".sh", ""}
EXEMPT = (
    "LICENSE",
    "tools/wording.txt",
    "constraints.txt",
    "examples/text/vocab.txt",
    "tests/conformance/models/",  # models as users write them
    "repogen/serving/onnxruntime_backend/",  # repeats messages of NVIDIA's backend
)
ALLOWED = "wording: ok"


def phrases() -> list[tuple[re.Pattern[str], str]]:
    """Return each rejected phrase with its replacement."""
    lines = (line for line in PHRASES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    pairs = (line.partition(" => ") for line in lines)
    return [(re.compile(pattern, re.IGNORECASE), replacement) for pattern, _, replacement in pairs]


def problems(path: Path, name: str, rejected: list[tuple[re.Pattern[str], str]]) -> Iterator[str]:
    """Yield one line per rejected phrase in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if ALLOWED in line:
            continue
        for pattern, replacement in rejected:
            if match := pattern.search(line):
                yield f"{name}:{number}: {match[0]!r}: write {replacement or 'something plainer'}"


def main() -> int:
    """Check every tracked text file; return 1 when a phrase is rejected."""
    command = ["git", "ls-files"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    rejected = phrases()
    lines = [
        line
        for name in names
        if not name.startswith(EXEMPT) and Path(name).suffix in SUFFIXES
        for line in problems(ROOT / name, name, rejected)
    ]
    print("\n".join(lines) or "wording: no problems")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
