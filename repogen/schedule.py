"""How the models of one build are run: several at a time, ensembles after their steps, a failure for each by itself."""

from __future__ import annotations

import os
import re
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from repogen.errors import ErrorRecord, RepogenError
from repogen.members import in_order, members
from repogen.values.report import ModelReport, Status

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from repogen.desk import ReleaseDesk
    from repogen.shared import Shared
    from repogen.values.progress import Progress

    BuildModel = Callable[[Shared, int, "Steps"], ModelReport]

_PLACED = re.compile(r":\d+$")
"""A place in a file, ``models.py:5``; a key path (``models.digits.triton``) ends in no line."""


@dataclass
class Steps:
    """A model's report as it fills, and the time each step took."""

    progress: Progress
    cancelled: threading.Event
    report: ModelReport
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step; none is begun once the build is cancelled, least of all publish."""
        if self.cancelled.is_set():
            raise KeyboardInterrupt
        self.progress.step(self.report.name, name)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - begun


def build_all(shared: Shared, names: list[str], build_model: BuildModel) -> dict[str, ModelReport]:
    """Build models, ``options.jobs`` at a time; each fails by itself.

    Args:
        shared: What they share.
        names: The models.
        build_model: Builds one, with so many threads, and fills its report.

    Raises:
        KeyboardInterrupt: Interrupted; what runs is being stopped.
    """
    jobs = max(1, min(shared.options.jobs, len(names)))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ThreadPoolExecutor(jobs, thread_name_prefix="model") as pool:
        futures: dict[str, Future[ModelReport]] = {}
        for name in in_order(shared.spec, names):  # what waits is begun after what it waits for
            before = {step: futures[step] for step in members(shared.spec.models, name) if step in futures}
            futures[name] = pool.submit(_guarded, build_model, shared, name, threads, before)
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            shared.cancelled.set()
            if shared.triton is not None:
                shared.triton.stop()  # ends a smoke test that is in the midst of its requests
            pool.shutdown(cancel_futures=True)
            raise


def _guarded(
    build_model: BuildModel, shared: Shared, name: str, threads: int, before: Mapping[str, Future[ModelReport]]
) -> ModelReport:
    """Build one model, after those that it is made of; whatever goes wrong becomes part of its report."""
    steps = Steps(shared.progress, shared.cancelled, ModelReport(name, Status.FAILED))
    if (unbuilt := _unbuilt(before)) is not None:
        return _logged(
            shared.desk, replace(steps.report, error=replace(unbuilt, where=shared.spec.where(f"models.{name}")))
        )
    try:
        return build_model(shared, threads, steps)
    except RepogenError as error:
        record = error.record
        if not _PLACED.search(record.where):  # a key path, or nothing: shown at that key, or at the model's
            record = replace(record, where=shared.spec.where(record.where or f"models.{name}"))
        return _logged(shared.desk, replace(steps.report, error=record, seconds=steps.seconds))
    except Exception as error:  # noqa: BLE001 - a bug in one model's build must not stop the others
        record = ErrorRecord("bug", f"unexpected {error!r}", "please report this", details=traceback.format_exc())
        return replace(steps.report, error=record, seconds=steps.seconds)


def _unbuilt(before: Mapping[str, Future[ModelReport]]) -> ErrorRecord | None:
    """Wait for an ensemble's steps; return why it can't be built, None when they all are."""
    for name, future in before.items():
        error = future.result().error
        if error is not None:
            why = error.message.partition("\n")[0]
            return ErrorRecord(
                "ensemble.step",
                f"its step {name} was not built: {why}",
                f"mend {name} first",
                exit_code=error.exit_code,
            )
    return None


def _logged(desk: ReleaseDesk | None, report: ModelReport) -> ModelReport:
    """Log a failure, unless it is MLflow's own or comes after the model's run was logged."""
    if desk is None or report.error is None or "track" in report.seconds:
        return report
    return desk.log_failed(report)
