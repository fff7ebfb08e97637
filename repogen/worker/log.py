"""The log of a supervised process: the last lines that user code printed, and the user's line that it crashed in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MAX_BYTES = 16 * 1024
_MAX_LINES = 3
_MAX_LINE_LENGTH = 200
# How a dump of faulthandler begins, anywhere on a line: after a crash, or when the stack of one thread is requested.
_DUMP = re.compile(r"Fatal Python error: .*$|Stack \(most recent call first\):$", re.MULTILINE)
# Of all threads, the one that crashed.
_STACK = re.compile(r"(?:Current thread \S+ .*|Stack )\(most recent call first\):\n(?P<frames>(?:  .+\n?)*)")
_CHECKOUT = Path(__file__).resolve().parents[2]  # the directory of repogen where it is not installed
_INSTALLED = re.compile(r"/\S*/(?:site-packages|lib/python3\.\d+)/")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in ', re.MULTILINE)


@dataclass(frozen=True)
class WorkerLog:
    """The end of a log.

    Attributes:
        text: The end of the log, unchanged.
        root: Directory of the spec; files below it are the user's.
    """

    text: str
    root: Path

    @property
    def last_lines(self) -> str:
        """The last printed lines, indented, without the stack of a crash; may be empty."""
        dumps = list(_DUMP.finditer(self.text))
        printed = self.text[: dumps[-1].start()] if dumps else self.text
        lines = [line.strip() for line in printed.splitlines() if line.strip()][-_MAX_LINES:]
        return "\n".join(f"  {self._shorten(line)[:_MAX_LINE_LENGTH]}" for line in lines)

    @property
    def suffix(self) -> str:
        """The last printed lines as the end of a message; may be empty."""
        return f"; last log lines:\n{self.last_lines}" if self.last_lines else ""

    @property
    def location(self) -> str:
        """``file:line`` of the user's innermost frame in the stack of a crash, relative to the spec; may be empty."""
        stacks = list(_STACK.finditer(self.text))
        for frame in _FRAME.finditer(stacks[-1]["frames"]) if stacks else ():
            file = Path(frame["file"]).resolve()  # Python models run through a symlink
            if file.is_relative_to(self.root.resolve()) and "site-packages" not in file.parts:
                return f"{file.relative_to(self.root.resolve())}:{frame['line']}"
        return ""

    def _shorten(self, line: str) -> str:
        """Return a line with paths relative to the spec or to site-packages."""
        for root in (self.root, self.root.resolve(), _CHECKOUT):
            line = line.replace(f"{root}/", "")
        return _INSTALLED.sub("", line)


def read_log(path: Path, root: Path) -> WorkerLog:
    """Read the end of the log at ``path``, which may have gigabytes; it is empty if user code removed the file."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(size - _MAX_BYTES, 0))
            return WorkerLog(log.read(_MAX_BYTES).decode(errors="replace"), root)
    except OSError:
        return WorkerLog("", root)
