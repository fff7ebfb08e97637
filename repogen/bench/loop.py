"""The loop of a process that runs a model: measures what each line of a pipe requests.

Imports only the standard library, because ``onnx_program.py`` runs it with the Python of the embedded Triton.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MIN_CALLS = 3


def follow(commands: str, run: Callable[[int], object], report: Callable[[list[float]], None]) -> None:
    """Read lines ``BATCH SECONDS``, call ``run(BATCH)`` for that time, and report the latencies in milliseconds."""
    with Path(commands).open(encoding="ascii") as lines:
        for line in lines:
            batch, seconds = line.split()
            report(latencies(partial(run, int(batch)), float(seconds)))


def latencies(run: Callable[[], object], seconds: float) -> list[float]:
    """Call ``run`` for some time, and at least three times; return the duration of each call in milliseconds."""
    times: list[float] = []
    start = time.perf_counter()
    while True:
        began = time.perf_counter()
        run()
        ended = time.perf_counter()
        times.append(round((ended - began) * 1e3, 5))
        if ended - start >= seconds and len(times) >= _MIN_CALLS:
            return times
