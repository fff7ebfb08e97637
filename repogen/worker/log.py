"""What a worker's log tells of its end: the last words of the model's code, and the line it was in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 16 * 1024
_MOST_LINES = 3
_MOST_LETTERS = 200
# How faulthandler begins, wherever on a line it may be: at a crash, or when it was asked for one thread's stack.
_DUMP = re.compile(r"Fatal Python error: .*$|Stack \(most recent call first\):$", re.MULTILINE)
# Of all threads, the one that crashed.
_STACK = re.compile(r"(?:Current thread \S+ .*|Stack )\(most recent call first\):\n(?P<frames>(?:  .+\n?)*)")
_OWN = Path(__file__).resolve().parents[2]  # where repogen lies, when it is not installed
_INSTALLED = re.compile(r"/\S*/(?:site-packages|lib/python3\.\d+)/")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in ', re.MULTILINE)


@dataclass(frozen=True)
class WorkerLog:
    """The end of a worker's log.

    Attributes:
        text: As it was written.
        root: Directory of the spec; files below it are the user's.
    """

    text: str
    root: Path

    @property
    def last_words(self) -> str:
        """The last lines that were printed, indented, without a crash's stack; empty when there are none."""
        dumps = list(_DUMP.finditer(self.text))
        printed = self.text[: dumps[-1].start()] if dumps else self.text
        lines = [line.strip() for line in printed.splitlines() if line.strip()][-_MOST_LINES:]
        return "\n".join(f"  {self._without_machine(line)[:_MOST_LETTERS]}" for line in lines)

    def _without_machine(self, line: str) -> str:
        for root in (self.root, self.root.resolve(), _OWN):
            line = line.replace(f"{root}/", "")
        return _INSTALLED.sub("", line)

    @property
    def place(self) -> str:
        """The user's innermost line on the stack of a crash, ``file:line`` relative to the spec; empty without one."""
        stacks = list(_STACK.finditer(self.text))
        for frame in _FRAME.finditer(stacks[-1]["frames"]) if stacks else ():
            file = Path(frame["file"]).resolve()  # Python code runs through a link, for the files beside it
            if file.is_relative_to(self.root.resolve()) and "site-packages" not in file.parts:
                return f"{file.relative_to(self.root.resolve())}:{frame['line']}"
        return ""


def read_log(path: Path, root: Path) -> WorkerLog:
    """Read the end of the log at ``path``; a model may have printed gigabytes."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(size - _MOST_BYTES, 0))
        return WorkerLog(log.read().decode(errors="replace"), root)
