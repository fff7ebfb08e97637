"""What the models of one build share while they are built."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from repogen.build.cache import user_cache
from repogen.build.sent_files import require_own_directories
from repogen.build.user_packages import user_packages
from repogen.errors import ServerError
from repogen.executors.interface import Workplace
from repogen.executors.select import LOCAL, find_executor
from repogen.files import is_inside
from repogen.files.paths import real_path
from repogen.reporting.results import REPORTS
from repogen.repository.layout import stage_container
from repogen.repository.workspace import prepare_stage_root, private_directory, private_repository
from repogen.serving.servers import BackgroundTriton, prepare_server
from repogen.targets import target_of
from repogen.worker.process import open_fork_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import RunningTriton
    from repogen.build.cache import Cache
    from repogen.build.plan import BuildOptions, BuildPlan
    from repogen.build.tracking import TrackingSession
    from repogen.executors.interface import RunningExecutor
    from repogen.serving.interface import TritonServer
    from repogen.spec.models import Spec
    from repogen.worker.fork_server import ForkServer


_UNAVAILABLE = frozenset(
    {"server.docker", "server.interpreter", "server.no-wheel", "server.remote", "server.requirements"}
)
"""Codes of the errors that a server cannot run on this machine, or does not respond."""


class StartingTriton(Protocol):
    """A Triton that starts while models are exported."""

    def wait(self) -> RunningTriton:
        """Return the server once it is live."""

    def stop(self) -> None:
        """Begin to stop it; requests that are in progress fail."""


@dataclass(frozen=True)
class BuildSession:
    """What the models of one build share.

    Attributes:
        plan: What to build.
        progress: Receives the steps of each model.
        staging: Staging directory of this build, on the repository's filesystem.
        triton: Server for smoke tests; None without smoke tests.
        tracking: Connection to MLflow; None if the build is not tracked.
        cancelled: Set when no further step may begin.
        cache: Verified models of earlier builds; None if it is turned off.
        executor: Builds the models elsewhere; None if this process builds them.
        packages: Directories and files of the user's packages that the executor copies.
        fetched: Files that were downloaded earlier for the source of kind ``mlflow``; None to download them.
        fork_server: Forks the workers; None for a single model, whose worker starts faster directly.
        linking: Held while dependencies of an ensemble are linked into the private repository.
        started: When the build started, in UTC.
    """

    plan: BuildPlan
    progress: Progress
    staging: Path
    triton: StartingTriton | None
    tracking: TrackingSession | None
    cancelled: threading.Event
    cache: Cache | None = None
    fork_server: ForkServer | None = None
    executor: RunningExecutor | None = None
    packages: tuple[Path, ...] = ()
    fetched: Path | None = None
    linking: threading.Lock = field(default_factory=threading.Lock)
    started: datetime = field(default_factory=partial(datetime.now, UTC))

    @property
    def spec(self) -> Spec:
        """The spec."""
        return self.plan.spec

    @property
    def options(self) -> BuildOptions:
        """The options."""
        return self.plan.options

    @property
    def repository(self) -> Path:
        """The model repository to publish to."""
        return self.plan.repository

    @property
    def jobs(self) -> int:
        """Number of models that are built at the same time."""
        if self.executor is None:
            return self.plan.jobs
        chosen = self.options.jobs
        limit = chosen if isinstance(chosen, int) else self.executor.jobs
        return max(1, min(limit, len(self.plan.pending)))

    @property
    def private_repository(self) -> Path:
        """The repository in the staging directory, in which models are staged and tested."""
        return private_repository(self.staging)

    @property
    def private_directory(self) -> Path:
        """The directory for files that are not staged yet, such as those of workers; other users cannot read it."""
        return private_directory(self.staging)

    def cancel(self) -> None:
        """Stop the build: no further step begins, and a smoke test that is running fails."""
        self.cancelled.set()
        if self.triton is not None:
            self.triton.stop()


@contextmanager
def open_session(
    plan: BuildPlan, progress: Progress, tracking: TrackingSession | None, cancelled: threading.Event
) -> Iterator[BuildSession]:
    """Hold the staging directory of a build, and a Triton that starts in the background.

    Args:
        plan: What to build.
        progress: Receives the steps of each model.
        tracking: Connection to MLflow; None if the build is not tracked.
        cancelled: Set when no further step may begin.

    Raises:
        RepogenError: A server is not installed, or the repository cannot be written.
    """
    options = plan.options
    progress.step("", "preflight")
    executor, address = find_executor(options.executor)
    triton_server = _server(plan, progress) if executor.name == LOCAL else None
    with ExitStack() as stack:
        staging = stack.enter_context(prepare_stage_root(plan.repository, options.stage_dir))
        models = [plan.spec.models[name] for name in plan.pending]
        packages: tuple[Path, ...] = ()
        unused = _unused(plan)
        if executor.name != LOCAL:
            packages = user_packages(models, plan.spec.root)
            require_own_directories((plan.spec.root, *packages), plan.spec.root, unused)
        running = stack.enter_context(executor.open(Workplace(plan.spec.root, unused, packages), address))
        triton: StartingTriton | None = None
        if triton_server is not None:
            triton = stack.enter_context(BackgroundTriton(triton_server, private_repository(staging)))
        elif running is not None and options.server is not None:
            triton = stack.enter_context(_TritonOnDemand(partial(_server, plan, progress), private_repository(staging)))
        fork_server = None
        if len(plan.pending) > 1 and running is None:
            fork_server = stack.enter_context(open_fork_server(models, plan.threads))
        yield BuildSession(
            plan, progress, staging, triton, tracking, cancelled, user_cache(), fork_server, running, packages
        )


class _TritonOnDemand:
    """A server for what was not tested elsewhere, such as a model from the cache; it starts when it is needed.

    Args:
        prepare: Returns the server.
        repository: The model repository.
    """

    def __init__(self, prepare: Callable[[], TritonServer | None], repository: Path) -> None:
        """Store the arguments; starts nothing."""
        self._prepare = prepare
        self._repository = repository
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._triton: BackgroundTriton | None = None

    def wait(self) -> RunningTriton:
        """Start the server, unless it was started before, and return it once it is live."""
        with self._lock:
            if self._triton is None:
                server = self._prepare()
                if server is None:
                    raise AssertionError("a build without a smoke test needs no server")
                self._triton = self._stack.enter_context(BackgroundTriton(server, self._repository))
        return self._triton.wait()

    def stop(self) -> None:
        """Begin to stop the server, if it was started."""
        if self._triton is not None:
            self._triton.stop()

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server, if it was started."""
        self._stack.close()


def _unused(plan: BuildPlan) -> tuple[str, ...]:
    """Return what is in the spec's directory and no task reads."""
    root = real_path(plan.spec.root)
    outputs = [plan.repository, stage_container(plan.repository, plan.options.stage_dir), root / REPORTS]
    paths = (real_path(path) for path in outputs)
    inside = {path.relative_to(root).as_posix() for path in paths if is_inside(path, root) and path != root}
    return tuple(sorted(inside | {".git", ".venv"}))


def _server(plan: BuildPlan, progress: Progress) -> TritonServer | None:
    if plan.options.server is None:
        return None
    try:
        return prepare_server(
            plan.options.server,
            target_of(plan.spec.release),
            progress,
            loads=True,
            credentials=plan.options.credentials,
        )
    except ServerError as error:
        if error.code in _UNAVAILABLE:
            error.hint = f"{error.hint}; --no-smoke publishes without a smoke test"
        raise
