"""Rejects phrases and names that a US engineer would stumble over; part of ``make lint``.

``wording.txt`` has one regular expression per line, and what to write instead. A phrase is also found if a line break
separates its words. In Python code, variables, parameters and functions must not be named by a bare participle
(``NAMES``). A line that must keep such a phrase or name, for example because it quotes another program, ends with
``wording: ok``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from bisect import bisect_right
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
    "repogen/serving/onnxruntime_backend/",  # repeats messages of NVIDIA's backend
)
EXEMPT_NAMES = (
    "benchmarks/check_agreement.py",  # uses the names of benchmarks/agreement
    "repogen/artifacts/environment.py",  # a key of `repogen doctor --json`
    "repogen/reporting/json_types.py",  # the same
)
NAMES = frozenset(
    {"asked", "fed", "found", "given", "kept", "known", "made", "meant", "said", "seen", "shown", "taken"}
)
NAMES |= {"thought", "told", "wanted"}
ALLOWED = "wording: ok"


def phrases() -> list[tuple[re.Pattern[str], str]]:
    """Return each rejected phrase with its replacement."""
    lines = (line for line in PHRASES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    pairs = (line.partition(" => ") for line in lines)
    return [(re.compile(pattern, re.IGNORECASE), replacement) for pattern, _, replacement in pairs]


def phrase_problems(text: str, name: str, rejected: list[tuple[re.Pattern[str], str]]) -> Iterator[str]:
    """Yield one line per rejected phrase in a file."""
    lines = text.splitlines()
    joined, starts = join_paragraphs(lines)
    for pattern, replacement in rejected:
        for match in pattern.finditer(joined):
            first, last = (bisect_right(starts, offset) for offset in (match.start(), match.end() - 1))
            if not any(ALLOWED in line for line in lines[first - 1 : last]):
                yield f"{name}:{first}: {match[0]!r}: write {replacement or 'something plainer'}"


def join_paragraphs(lines: list[str]) -> tuple[str, list[int]]:
    """Return the lines as one text, in which a line that continues a sentence follows after a space.

    Returns:
        The text, and the offset of each line in it.
    """
    parts: list[str] = []
    starts, length, last = [], 0, ""
    for line in lines:
        content = line.strip().removeprefix("# ")
        continues = last.isalnum() and content[:1].isalnum()
        part = f" {content}" if continues else f"\n{line.rstrip()}"
        starts.append(length + 1)
        parts.append(part)
        length, last = length + len(part), part[-1]
    return "".join(parts), starts


def name_problems(text: str, name: str) -> Iterator[str]:
    """Yield one line per variable, parameter or function of a Python file that is named by a bare participle."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=identifier, ctx=ast.Store()) | ast.Attribute(attr=identifier, ctx=ast.Store()):
                pass
            case ast.arg(arg=identifier) | ast.FunctionDef(name=identifier):
                pass
            case _:
                continue
        if identifier.strip("_") in NAMES and ALLOWED not in lines[node.lineno - 1]:
            yield f"{name}:{node.lineno}: {identifier!r}: use a noun for what it holds"


def problems(path: Path, name: str, rejected: list[tuple[re.Pattern[str], str]]) -> Iterator[str]:
    """Yield one line per problem in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    yield from phrase_problems(text, name, rejected)
    if path.suffix == ".py" and not name.startswith(EXEMPT_NAMES):
        yield from name_problems(text, name)


def main() -> int:
    """Check every tracked text file; return 1 if there is a problem."""
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
