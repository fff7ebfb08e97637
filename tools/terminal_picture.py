"""Draws a command and its output as an SVG of a terminal: ``python tools/terminal_picture.py OUT.svg COMMAND…``."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 112
_FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def main(out: str, *command: str) -> None:
    """Run the command, and save what it prints on standard output."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text(f"$ {shlex.join([Path(command[0]).name, *command[1:]])}", style="bold green"))
        console.print(Text(f"{run.stdout.rstrip()}\n"))
    svg = _FONT_FACE.sub("", console.export_svg(title="repogen"))  # the page makes no request to another host
    Path(out).write_text(svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
