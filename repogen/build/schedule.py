"""How the models of one build are run: several at a time, ensembles after their steps, a failure for each by itself."""

from __future__ import annotations

import os
import re
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from repogen.errors import ErrorRecord, RepogenError
from repogen.build.dependencies import in_order, members
from repogen.artifacts.report import ModelReport, Status

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from repogen.build.tracking import ReleaseDesk
    from repogen.build.session import Shared
    from repogen.artifacts.progress import Progress

    Release = Callable[[], ModelReport]
    Verify = Callable[[Shared, int, "Steps"], Release]

Result = TypeVar("Result")

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


@dataclass
class _Turn:
    """A model that was built: its report, and what publishes it, where that has to wait for others."""

    steps: Steps
    report: ModelReport
    release: Release | None = None


def build_all(shared: Shared, names: list[str], verify: Verify) -> dict[str, ModelReport]:
    """Build models, ``options.jobs`` at a time; each fails by itself.

    A model that is a step of an ensemble is published after the ensemble was proved, and not at all when that failed:
    published before, it would be what the ensemble that is served now is made of.

    Args:
        shared: What they share.
        names: The models.
        verify: Builds one, with so many threads, fills its report, and returns what publishes it.

    Raises:
        KeyboardInterrupt: Interrupted; what runs is being stopped.
    """
    jobs = max(1, min(shared.options.jobs, len(names)))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    within = {name: members(shared.spec.models, name) for name in names}
    held = {each for name, steps in within.items() if steps for each in (name, *steps)}
    order = in_order(shared.spec, names)  # what waits is begun after what it waits for
    with ThreadPoolExecutor(jobs, thread_name_prefix="model") as pool:
        futures: dict[str, Future[_Turn]] = {}
        for name in order:
            before = {step: futures[step] for step in within[name] if step in futures}
            wait = name in held and not shared.options.dry_run
            futures[name] = pool.submit(_turn, verify, shared, name, threads, before, wait=wait)
        try:
            turns = {name: future.result() for name, future in futures.items()}
        except BaseException:
            shared.cancelled.set()
            if shared.triton is not None:
                shared.triton.stop()  # ends a smoke test that is in the midst of its requests
            pool.shutdown(cancel_futures=True)
            raise
    for name in order:
        _settle(shared, name, turns, within)
    return {name: turns[name].report for name in names}


def _turn(
    verify: Verify, shared: Shared, name: str, threads: int, before: Mapping[str, Future[_Turn]], *, wait: bool
) -> _Turn:
    """Build one model, after those that it is made of, and publish it unless that has to wait."""
    steps = Steps(shared.progress, shared.cancelled, ModelReport(name, Status.FAILED))
    reports = {step: future.result().report for step, future in before.items()}
    if (unbuilt := _unbuilt(reports)) is not None:
        return _Turn(steps, _failed(shared, steps, unbuilt))
    release = _guarded(shared, steps, lambda: verify(shared, threads, steps))
    if isinstance(release, ModelReport):
        return _Turn(steps, release)
    if wait:
        return _Turn(steps, steps.report, release)
    return _Turn(steps, _guarded(shared, steps, release))


def _settle(shared: Shared, name: str, turns: Mapping[str, _Turn], within: Mapping[str, tuple[str, ...]]) -> None:
    """Publish a model that waited, unless something that it waited for failed."""
    turn = turns[name]
    if turn.release is None:
        return
    failed = next((user for user, of in within.items() if name in of and turns[user].report.error is not None), None)
    reason = _unbuilt({step: turns[step].report for step in within[name] if step in turns})
    if failed is not None and reason is None:
        error = turns[failed].report.error
        what = f"it holds, and was not published: {failed}, which is made of it, failed"
        hint = f"mend {failed}; `--model {turn.steps.report.name}` builds it alone"
        reason = ErrorRecord("ensemble.held-back", what, hint, exit_code=error.exit_code if error else 1)
    turn.report = (
        _failed(shared, turn.steps, reason) if reason is not None else _guarded(shared, turn.steps, turn.release)
    )
    turn.release = None


def _guarded(shared: Shared, steps: Steps, act: Callable[[], Result]) -> Result | ModelReport:
    """Do something for a model; whatever goes wrong becomes its report."""
    try:
        return act()
    except RepogenError as error:
        return _failed(shared, steps, error.record)
    except Exception as error:  # noqa: BLE001 - a bug in one model's build must not stop the others
        record = ErrorRecord("bug", f"unexpected {error!r}", "please report this", details=traceback.format_exc())
        return replace(steps.report, error=record, seconds=steps.seconds)


def _failed(shared: Shared, steps: Steps, record: ErrorRecord) -> ModelReport:
    if not _PLACED.search(record.where):  # a key path, or nothing: shown at that key, or at the model's
        record = replace(record, where=shared.spec.where(record.where or f"models.{steps.report.name}"))
    report = replace(steps.report, status=Status.FAILED, error=record, seconds=steps.seconds)
    return _logged(shared.desk, report)


def _unbuilt(reports: Mapping[str, ModelReport]) -> ErrorRecord | None:
    """Return why an ensemble can't be built of its steps, None when they all are there."""
    for name, report in reports.items():
        if report.error is not None:
            why = report.error.message.partition("\n")[0]
            return ErrorRecord(
                "ensemble.step",
                f"its step {name} was not built: {why}",
                f"mend {name} first",
                exit_code=report.error.exit_code,
            )
    return None


def _logged(desk: ReleaseDesk | None, report: ModelReport) -> ModelReport:
    """Log a failure, unless it is MLflow's own or comes after the model's run was logged."""
    if desk is None or report.error is None or "track" in report.seconds:
        return report
    return desk.log_failed(report)
