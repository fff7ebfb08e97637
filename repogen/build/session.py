"""What the models of one build share: options, staging directory, a Triton, the connection to MLflow."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.errors import RepogenError
from repogen.spec.sources import MlflowSource
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.serving.background import BackgroundTriton
    from repogen.build.tracking import ReleaseDesk
    from repogen.spec.models import Spec
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import TritonServer
    from repogen.artifacts.tracking import Tracking


@dataclass(frozen=True)
class BuildOptions:
    """Flags of ``repogen build``.

    Attributes:
        models: Names to build; all when empty.
        repository: Overrides the spec's.
        server: ``embedded``, ``docker`` or ``HOST:PORT``; None for no smoke test.
        force: Build what is unchanged, too.
        dry_run: Everything but track and publish.
        breaking: Allow a signature that differs from the published one.
        jobs: Models built at a time.
        stage_dir: Where to stage; beside the repository when None.
        track: Whether to track where the spec or ``tracking_uri`` says so.
        tracking_uri: Overrides MLFLOW_TRACKING_URI and the spec's.
        every_rung: Try the exporters after the first that holds, too.
    """

    models: tuple[str, ...] = ()
    repository: Path | None = None
    server: str | None = "embedded"
    force: bool = False
    dry_run: bool = False
    breaking: bool = False
    jobs: int = 1
    stage_dir: Path | None = None
    track: bool = True
    tracking_uri: str | None = None
    every_rung: bool = False


@dataclass
class Shared:
    """What is held while models are built.

    Attributes:
        spec: The spec.
        options: The flags.
        repository: Where to publish.
        progress: Hears of the steps.
        cancelled: Set when nothing more may be begun.
        desk: The connection to MLflow; None when the build is not tracked.
        root: The staging directory; ``open_workshop`` sets it.
        triton: The server; None without a smoke test.
        building: The models that are built, not found unchanged.
        linking: Held while an ensemble's steps are linked into the private repository.
    """

    spec: Spec
    options: BuildOptions
    repository: Path
    progress: Progress
    cancelled: threading.Event = field(default_factory=threading.Event)
    desk: ReleaseDesk | None = None
    root: Path = Path()
    triton: BackgroundTriton | None = None
    building: frozenset[str] = frozenset()
    linking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def private(self) -> Path:
        """The private repository, in which models are staged and tested."""
        from repogen.repository.workspace import private_repository  # noqa: PLC0415 - an unchanged build needs none

        return private_repository(self.root)


def tracking_asked_for(spec: Spec, options: BuildOptions) -> Tracking | None:
    """Return where to track; None when neither spec nor flag asks for it, or nothing is to be published."""
    if not options.track or options.dry_run or (spec.mlflow is None and options.tracking_uri is None):
        return None
    from repogen.registry.mlflow.uri import tracking_of  # noqa: PLC0415 - an untracked build needs none

    return tracking_of(spec, options.tracking_uri, spec.root)


def pinned(spec: Spec, options: BuildOptions, names: list[str]) -> Spec:
    """Return the spec with aliases of MLflow's registry replaced by the versions that they point to now.

    So a build depends on the version, and an alias that moved is a change. Where MLflow can't be asked, the alias
    stays: the model then counts as changed, and fails with the reason when it is fetched.
    """
    models = dict(spec.models)
    for name in names:
        source = models[name].source
        if isinstance(source, MlflowSource):
            from repogen.registry.mlflow.access import pin_model  # noqa: PLC0415 - such sources only
            from repogen.registry.mlflow.uri import tracking_of  # noqa: PLC0415 - such sources only

            with suppress(RepogenError):
                uri = pin_model(tracking_of(spec, options.tracking_uri, spec.root), source.uri)
                models[name] = models[name].model_copy(update={"source": source.model_copy(update={"uri": uri})})
    return replace(spec, models=models)


def fetched_files(shared: Shared, name: str, source: MlflowSource) -> Path:
    """Download the files of a model that MLflow keeps, into the staging directory.

    Raises:
        SourceError: MLflow has no such model.
        TrackingError: MLflow can't be reached.
    """
    from repogen.registry.mlflow.access import fetch_model  # noqa: PLC0415 - such sources only
    from repogen.registry.mlflow.uri import tracking_of  # noqa: PLC0415 - such sources only

    directory = shared.root / "fetched" / name
    directory.mkdir(parents=True)
    tracking = tracking_of(shared.spec, shared.options.tracking_uri, shared.spec.root)
    return fetch_model(tracking, source.uri, directory)


@contextmanager
def open_desk(shared: Shared, tracking: Tracking | None, names: list[str]) -> Iterator[None]:
    """Hold the connection to MLflow, with a run for each of ``names``; when it fails, that is why the build ends.

    Raises:
        TrackingError: The server is down, slow, refuses, or went away.
    """
    if tracking is None:
        yield
        return
    from repogen.build.tracking import ReleaseDesk  # noqa: PLC0415 - an untracked build needs none

    shared.progress.step("", "preflight")
    desk = ReleaseDesk(tracking, shared.repository, names, shared.cancelled.set)
    try:
        with desk:
            shared.desk = desk
            yield
    except KeyboardInterrupt:
        if desk.error is not None:
            raise desk.error from None
        raise


@contextmanager
def open_workshop(shared: Shared, names: list[str]) -> Iterator[None]:
    """Preflight, then hold the staging directory and the Triton that all models share; it starts while they export.

    Raises:
        RepogenError: An extra or a server is missing, or the repository can't be written.
    """
    from repogen.serving.background import BackgroundTriton  # noqa: PLC0415 - an unchanged build needs no server
    from repogen.repository.workspace import preflight, prepare_stage_root, private_repository  # noqa: PLC0415 - the same
    from repogen.worker.requirements import require_installed  # noqa: PLC0415 - the same

    spec, options = shared.spec, shared.options
    shared.progress.step("", "preflight")
    require_installed(spec.models[name] for name in names)
    preflight(shared.repository, options.stage_dir)
    server = _server(spec, options, shared.progress)
    with ExitStack() as stack:
        shared.root = stack.enter_context(prepare_stage_root(shared.repository, options.stage_dir))
        if server is not None:
            shared.triton = stack.enter_context(BackgroundTriton(server, private_repository(shared.root)))
        shared.progress.step("", "done")
        yield


def _server(spec: Spec, options: BuildOptions, progress: Progress) -> TritonServer | None:
    if options.server is None:
        return None
    from repogen.serving.servers import server  # noqa: PLC0415 - an unchanged build needs no server

    found = server(options.server, targets()[spec.release], progress)
    found.preflight()
    found.install()
    return found
