"""Prints the section of a version in CHANGELOG.md: ``release_notes.py v0.2.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\]", re.MULTILINE)


def release_notes(changelog: str, version: str) -> str:
    """Return the text of a version's section, without its heading.

    Args:
        changelog: Text in the format of Keep a Changelog.
        version: The version, without ``v``.

    Raises:
        ValueError: The changelog has no such section, or it is empty.
    """
    headings = list(_HEADING.finditer(changelog))
    ends = [heading.start() for heading in headings[1:]] + [len(changelog)]
    for heading, end in zip(headings, ends, strict=True):
        text = changelog[heading.end() : end].partition("\n")[2].strip()
        if heading["version"] == version and text:
            return f"{text}\n"
    raise ValueError(f"the changelog has no section [{version}] with text")


if __name__ == "__main__":
    try:
        sys.stdout.write(release_notes(_CHANGELOG.read_text(encoding="utf-8"), sys.argv[1].removeprefix("v")))
    except ValueError as error:
        sys.exit(str(error))
