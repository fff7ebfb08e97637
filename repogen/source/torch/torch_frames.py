"""Helpers for torch modes that observe a running model: the current user frame, and dropping compiled code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_NOT_USER_CODE = frozenset({"torch", "repogen", "runpy", "__main__"})
_INSTALLED = "/site-packages/"


def user_frame() -> FrameType:
    """Return the nearest frame outside torch and repogen; the outermost frame if there is none."""
    frame = sys._getframe(1)  # noqa: SLF001 - a traceback would cost more
    while frame.f_back is not None and _is_library(frame):
        frame = frame.f_back
    return frame


def _is_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_USER_CODE


def user_line() -> str:
    """Return ``file:line`` of the user frame, relative to site-packages if the file is in it; empty without one."""
    frame = user_frame()
    if _is_library(frame):
        return ""
    file = frame.f_code.co_filename
    return f"{file.rpartition(_INSTALLED)[2] if _INSTALLED in file else Path(file).name}:{frame.f_lineno}"


def forget_compiled() -> None:
    """Drop code compiled for operators such as ``torch.cond``, which is valid only with or only without a mode."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
