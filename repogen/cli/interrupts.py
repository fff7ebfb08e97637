"""Ctrl-C, SIGTERM and SIGHUP end a command with one line and exit code 130, at any moment.

While no command runs, that is, during the imports and at the end, a signal ends the process: there is nothing to clean
up. While a command runs, the first signal raises ``KeyboardInterrupt``, and the command cleans up. The second one only
prints a line. The third one ends the process, and the next build removes what is left, as after ``kill -9``. An import
in a command is completed first: numpy, for example, turns the exception into an ``ImportError``.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_CODE = 130  # ExitCode.INTERRUPTED; this module imports nothing that takes time
_MAX_SIGNALS = 3
_RETRY_SECONDS = 0.05
_IMPORT_SECONDS = 0.001  # the command must not begin its work in between
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


class _State:
    """The state of the handler: whether a command runs, how many signals it got, and whether one was raised."""

    command_runs = False
    received = 0
    raised = False


def install() -> None:
    """Handle the signals from now on; those that the caller ignores, as ``nohup`` does, stay ignored."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)
    signal.signal(signal.SIGALRM, _handle)
    atexit.register(_ignore_signals)  # runs after every other callback
    sys.unraisablehook = _retry_lost_interrupt


@contextmanager
def command_running() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` for a signal in the block; the block cleans up."""
    _State.command_runs, _State.received, _State.raised = True, 0, False
    try:
        yield
    finally:
        _State.command_runs = False


def _handle(number: int, frame: FrameType | None) -> None:
    if not _State.command_runs:
        _end("interrupted")
    is_retry = number == signal.SIGALRM
    if not is_retry:
        _State.received += 1
    if _State.received >= _MAX_SIGNALS:
        _end("interrupted during the cleanup; the next build removes the remaining files")
    if _State.raised:
        if not is_retry:
            _print("cleaning up; interrupt again to exit immediately")
    elif _is_importing(frame):
        _retry(_IMPORT_SECONDS)
    else:
        _State.raised = True
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORT_SYSTEM:
        frame = frame.f_back
    return frame is not None


def _retry(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _retry_lost_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Interrupt again if the exception was raised in a destructor or callback, where Python drops it."""
    if unraisable.exc_type is KeyboardInterrupt:
        _State.raised = False
        _retry(_RETRY_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _ignore_signals() -> None:
    """Ignore signals: the result is complete, and Python would reset their handlers while it ends."""
    for number in (*_SIGNALS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _end(message: str) -> NoReturn:
    _print(message)
    os._exit(_EXIT_CODE)


def _print(message: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"{message}\n".encode())
