"""``python -m repogen`` and the script ``repogen``."""

import os
import sys
from typing import NoReturn

from repogen.cli.interrupts import install

_OTHERS_MAY_NOT_WRITE = 0o002
"""With a umask of 0, any user could change what is verified, before it is published."""


def main() -> NoReturn:
    """Run the command line; from the first line on, a signal ends it without a traceback."""
    install()
    os.umask(os.umask(0o022) | _OTHERS_MAY_NOT_WRITE)
    _open_standard_streams()
    from repogen.cli.group import run  # noqa: PLC0415 - imports click, and must be interruptible

    run()


def _open_standard_streams() -> None:
    """Open closed standard streams, so that no other file gets their numbers; escape what cannot be encoded."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # gets the lowest free number
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a TextIOWrapper


if __name__ == "__main__":
    main()
