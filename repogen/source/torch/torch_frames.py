"""What everything needs that watches a model run: whose line it is at, and nothing compiled in the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_OURS = frozenset({"torch", "repogen", "runpy", "__main__"})
_INSTALLED = "/site-packages/"


def user_frame() -> FrameType:
    """Return the nearest frame that is neither torch's nor repogen's; the outermost when there is none."""
    frame = sys._getframe(1)  # noqa: SLF001 - a traceback would cost more
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS


def user_line() -> str:
    """Return ``file:line`` of that frame, a file in site-packages as it is known there; empty without one."""
    frame = user_frame()
    if _is_ours(frame):
        return ""
    file = frame.f_code.co_filename
    return f"{file.rpartition(_INSTALLED)[2] if _INSTALLED in file else Path(file).name}:{frame.f_lineno}"


def forget_compiled() -> None:
    """Drop what torch compiled for operators such as ``torch.cond``: it holds with or without watchers, not both."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
