"""Runs a module at another time, which shows whether its outputs depend on the current time."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHIFT = dt.timedelta(days=500, hours=7, minutes=13, seconds=11)
"""Changes the year, the month, the day of the week, the hour, the minute and the second."""


@contextlib.contextmanager
def another_time() -> Iterator[None]:
    """Shift the clock of Python's ``time`` and ``datetime``, also where a module imported their functions by name.

    Clocks that measure durations, such as ``time.perf_counter``, are not shifted.
    """
    originals = [*_FUNCTIONS, dt.datetime]
    replacements = {id(original): new for original, new in zip(originals, [*_shifted(), _LaterDatetime], strict=True)}
    places = [
        (namespace, name, value)
        for namespace in [
            getattr(module, "__dict__", {}) for key, module in list(sys.modules.items()) if key != __name__
        ]
        for name, value in list(namespace.items())
        if id(value) in replacements
    ]
    try:
        for namespace, name, value in places:
            namespace[name] = replacements[id(value)]
        yield
    finally:
        for namespace, name, value in places:
            namespace[name] = value


class _InstancesOfDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _datetime)


_datetime = dt.datetime


class _LaterDatetime(_datetime, metaclass=_InstancesOfDatetime):
    """``datetime.datetime`` with another current time; ``today`` and ``date.today`` call ``time.time``."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - the class is only used at runtime
        return super().now(tz) + _SHIFT

    @classmethod
    def utcnow(cls) -> Any:  # noqa: ANN401
        return super().utcnow() + _SHIFT


_FUNCTIONS = (time.time, time.time_ns, time.localtime, time.gmtime, time.ctime, time.asctime, time.strftime)


def _shifted() -> tuple[Any, ...]:
    """Return replacements of ``_FUNCTIONS``, which use the shifted time where no time is given."""
    now, now_ns, localtime, gmtime, ctime, asctime, strftime = _FUNCTIONS
    seconds = _SHIFT.total_seconds()

    def later() -> float:
        return now() + seconds

    return (
        later,
        lambda: now_ns() + int(seconds) * 10**9,
        lambda at=None: localtime(later() if at is None else at),
        lambda at=None: gmtime(later() if at is None else at),
        lambda at=None: ctime(later() if at is None else at),
        lambda at=None: asctime(localtime(later()) if at is None else at),
        lambda form, at=None: strftime(form, localtime(later()) if at is None else at),
    )
