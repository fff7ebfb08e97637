"""Runs the models of a build: several at a time, ensembles after their dependencies. Failures are isolated."""

from __future__ import annotations

import itertools
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from repogen.artifacts.report import ModelReport, Status
from repogen.build.costs import read_costs
from repogen.build.dependencies import build_order, ensemble_dependencies
from repogen.build.model_run import ModelRun
from repogen.build.plan import AUTO_JOBS
from repogen.build.preconditions import with_place
from repogen.errors import ErrorRecord, RepogenError
from repogen.machine import available_memory
from repogen.repository.workspace import write_error
from repogen.worker.process import may_lack_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from concurrent.futures import Future

    from repogen.build.session import BuildSession

    Publish: TypeAlias = Callable[[], ModelReport]
    Verify: TypeAlias = Callable[[BuildSession, ModelRun, int], Publish]

Result = TypeVar("Result")


RETRIED = (
    "its worker was killed while other models were built, perhaps because memory was exhausted; it was built again "
    "alone: a lower --jobs avoids this"
)
_MARGIN = 1.2
"""Times the memory of the worker: the ONNX Runtime of the target and Triton also load the model."""
_POLL_SECONDS = 1.0


class Room:
    """Lets models be verified at the same time, as far as memory allows, or one of them alone.

    Args:
        free: Returns the free memory in bytes; None where the system does not report it.
    """

    def __init__(self, free: Callable[[], int | None]) -> None:
        """Begin without a model; what is free now is shared by the models."""
        self._changed = threading.Condition()
        self._used = 0
        self._reserved = False
        self._free = free
        self._unassigned = free()

    @contextmanager
    def shared(self, memory: int = 0) -> Iterator[None]:
        """Wait until no model is to be alone, and memory is free; a model that is the only one does not wait for that.

        Args:
            memory: Bytes that the model needs; 0 if that does not matter.
        """
        with self._changed:
            while self._reserved or not self._fits(memory):
                self._changed.wait(_POLL_SECONDS)  # other programs use memory as well
            self._used += 1
            self._assign(memory)
        try:
            yield
        finally:
            with self._changed:
                self._used -= 1
                self._assign(-memory)
                self._changed.notify_all()

    def _fits(self, memory: int) -> bool:
        """Return whether memory is free now, and was not assigned to a model that has not used it yet."""
        if not memory or not self._used or self._unassigned is None:
            return True
        free = self._free()
        return memory <= min(self._unassigned, self._unassigned if free is None else free)

    def _assign(self, memory: int) -> None:
        if self._unassigned is not None:
            self._unassigned -= memory

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other model is in the block; none begins until the end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._reserved)
            self._reserved = True
            self._changed.wait_for(lambda: self._used == 0)
        try:
            yield
        finally:
            with self._changed:
                self._reserved = False
                self._changed.notify_all()


@dataclass(frozen=True)
class PendingBuild:
    """A model whose steps ran.

    Attributes:
        run: Its steps.
        report: Its report; until ``publish`` was called, that of a model that is not published.
        publish: Publishes the verified version; None if that was done, or if the model failed.
    """

    run: ModelRun
    report: ModelReport
    publish: Publish | None = None


def build_models(session: BuildSession, verify: Verify) -> dict[str, ModelReport]:
    """Build the models of a plan, ``options.jobs`` at a time.

    A model that an ensemble uses is published only after the ensemble was verified: published earlier, it could break
    the ensemble that is being served.

    Args:
        session: The build session.
        verify: Runs the steps of one model up to its smoke test with a number of threads, and returns what publishes
            the model.

    Returns:
        A report for every pending model, by name.

    Raises:
        KeyboardInterrupt: The build was interrupted; running models are being stopped.
    """
    names = session.plan.pending
    dependencies = {name: ensemble_dependencies(session.spec.models, name) for name in names}
    held_models = {member for name, steps in dependencies.items() if steps for member in (name, *steps)}
    order = build_order(session.spec, names)  # dependencies first, so that no ensemble blocks the threads of its steps
    room = Room(available_memory)
    needs = _memory_needs(session)
    with ThreadPoolExecutor(session.jobs, thread_name_prefix="model") as pool:
        futures: dict[str, Future[PendingBuild]] = {}
        for name in order:
            steps = {step: futures[step] for step in dependencies[name] if step in futures}
            hold = name in held_models and not session.options.dry_run
            run = ModelRun(name, session.progress, session.cancelled)
            verify_once = partial(_verify, session, run, room, needs.get(name, 0), verify)
            futures[name] = pool.submit(_build, session, run, verify_once, steps, hold=hold)
        _count_builds(session, futures.values())
        try:
            builds = {name: future.result() for name, future in futures.items()}
        except BaseException:
            session.cancel()
            pool.shutdown(cancel_futures=True)
            raise
    for name in order:
        builds[name] = _publish_held(session, name, builds, dependencies)
    return {name: builds[name].report for name in names}


def _memory_needs(session: BuildSession) -> dict[str, int]:
    """Return the bytes of memory that each model needs, with a margin; nothing unless the number of jobs is auto."""
    if session.options.jobs != AUTO_JOBS or session.executor is not None:
        return {}
    return {name: int(cost.memory_bytes * _MARGIN) for name, cost in read_costs(session.spec).items()}


def _count_builds(session: BuildSession, futures: Collection[Future[PendingBuild]]) -> None:
    """Report how many of the models are finished, now and after each one; not one that was interrupted."""
    lock, finished = threading.Lock(), itertools.count(1)

    def report(future: Future[PendingBuild]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        with lock:
            session.progress.step("", f"finished {next(finished)} of {len(futures)} models")

    session.progress.step("", f"finished 0 of {len(futures)} models")
    for future in futures:
        future.add_done_callback(report)


def _build(
    session: BuildSession,
    run: ModelRun,
    verify: Callable[[], Publish],
    dependencies: Mapping[str, Future[PendingBuild]],
    *,
    hold: bool,
) -> PendingBuild:
    """Verify one model after its dependencies, and publish it unless its publish is held."""
    error = _failed_dependency({name: future.result().report for name, future in dependencies.items()})
    if error is not None:
        return PendingBuild(run, _failure(session, run, error))
    publish = _attempt(session, run, verify)
    if isinstance(publish, ModelReport):
        return PendingBuild(run, publish)
    if hold:
        session.progress.step(run.name, "verified; waiting for the models that are published with it")
        return PendingBuild(run, run.report(Status.VERIFIED), publish)
    return PendingBuild(run, _publish(session, run, publish))


def _verify(session: BuildSession, run: ModelRun, room: Room, memory: int, verify: Verify) -> Publish:
    """Verify one model; if its worker was killed as for lack of memory, once more without other models."""
    threads = session.plan.threads
    try:
        with room.shared(memory):
            return verify(session, run, threads)
    except RepogenError as error:
        if session.jobs == 1 or session.executor is not None or not may_lack_memory(error.record):
            raise
    session.progress.step(run.name, "its worker was killed; waiting to be built alone")
    run.restart(RETRIED)
    with room.alone():
        return verify(session, run, threads)


def _publish(session: BuildSession, run: ModelRun, publish: Publish) -> ModelReport:
    report = _attempt(session, run, publish)
    if report.error is None:
        session.progress.step(run.name, "done")
    return report


def _publish_held(
    session: BuildSession, name: str, builds: Mapping[str, PendingBuild], dependencies: Mapping[str, tuple[str, ...]]
) -> PendingBuild:
    """Publish a model whose publish was held, unless an ensemble that uses it, or a dependency, failed."""
    build = builds[name]
    if build.publish is None:
        return build
    error = _failed_dependency({step: builds[step].report for step in dependencies[name] if step in builds})
    error = error or _failed_ensemble(name, builds, dependencies)
    report = _publish(session, build.run, build.publish) if error is None else _failure(session, build.run, error)
    return replace(build, report=report, publish=None)


def _failed_dependency(reports: Mapping[str, ModelReport]) -> ErrorRecord | None:
    """Return why an ensemble cannot be built from its dependencies; None if all were built."""
    for name, report in reports.items():
        if report.error is not None:
            reason = report.error.summary
            return ErrorRecord(
                "ensemble.step",
                f"its step {name} was not built: {reason}",
                f"fix {name} first",
                exit_code=report.error.exit_code,
            )
    return None


def _failed_ensemble(
    name: str, builds: Mapping[str, PendingBuild], dependencies: Mapping[str, tuple[str, ...]]
) -> ErrorRecord | None:
    """Return why a verified model cannot be published; None if every ensemble that uses it was verified."""
    for ensemble, steps in dependencies.items():
        error = builds[ensemble].report.error
        if name in steps and error is not None:
            return ErrorRecord(
                "ensemble.held-back",
                f"verified but not published: the ensemble {ensemble}, which uses it, failed",
                f"fix {ensemble}, or build this model alone with `--model {name}`",
                exit_code=error.exit_code,
            )
    return None


def _attempt(session: BuildSession, run: ModelRun, action: Callable[[], Result]) -> Result | ModelReport:
    """Return the result of an action for a model, or the report of its failure."""
    try:
        return action()
    except RepogenError as error:
        return _failure(session, run, error.record)
    except OSError as error:
        record = write_error(run.name, session.staging, error).record
        return _failure(session, run, replace(record, details=traceback.format_exc()))
    except Exception as error:  # noqa: BLE001 - a bug in one model's build must not stop the others
        details = traceback.format_exc()
        return _failure(
            session, run, ErrorRecord("bug", f"unexpected {error!r}", "please report this", details=details)
        )


def _failure(session: BuildSession, run: ModelRun, error: ErrorRecord) -> ModelReport:
    """Return the report of a failed model, and record the failure in MLflow.

    A failure of MLflow itself, or one after the model's MLflow run was logged, is not recorded there.
    """
    report = run.report(Status.FAILED, with_place(session.spec, run.name, error))
    session.progress.step(run.name, "failed")
    if session.tracking is None or "track" in report.seconds:
        return report
    return session.tracking.log_failed(report)
