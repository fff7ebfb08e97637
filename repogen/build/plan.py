"""Options of a build, and the plan that is made from them before anything heavy is imported."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.files.url import relative_text
from repogen.machine import available_processors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.attestation import SigningKey
    from repogen.artifacts.plan import Shard
    from repogen.artifacts.report import ModelReport
    from repogen.artifacts.serving import Credentials
    from repogen.artifacts.tracking import Tracking
    from repogen.spec.models import Spec
    from repogen.stores.open import OpenedRepository

AUTO_JOBS: Final = "auto"


@dataclass(frozen=True)
class BuildOptions:
    """Options of ``repogen build``.

    Attributes:
        models: Names of the models to build; empty for all.
        repository: Model repository to publish to; None for the spec's.
        server: ``embedded``, ``docker`` or ``HOST:PORT``; None skips the smoke test.
        credentials: TLS and headers of a server at ``HOST:PORT``.
        force: Whether to build models that are up to date.
        dry_run: Whether to skip tracking and publishing.
        allow_breaking: Whether a signature may differ from the published version's.
        adopt: Names of models to take over, if repogen did not build those in the repository.
        jobs: Number of models to build at a time; ``auto`` for one per processor, as far as memory allows. None for one
            on this machine, and for as many as another executor accepts.
        stage_dir: Directory to stage in; None for the repository's parent.
        track: Whether to track the build in MLflow if the spec, ``tracking_uri`` or the environment configures it.
        tracking_uri: Tracking server; overrides ``MLFLOW_TRACKING_URI`` and the spec's.
        try_all_exporters: Whether to try the remaining exporters after one succeeded.
        signing_key: What signs the versions; None to leave them unsigned.
        report: Whether to write an HTML report and the results of the models next to the spec.
        store: The repository to publish to if it is in a store; ``repository`` is its working copy.
        shard: The part of the selected models to build; None for all.
        executor: What runs the export, the verification and the smoke test of each model: ``NAME`` or ``NAME=ADDRESS``.
        costs: Seconds by model, by which shards are balanced; the costs of other models are estimated.
    """

    models: tuple[str, ...] = ()
    repository: Path | None = None
    server: str | None = "embedded"
    credentials: Credentials = NO_CREDENTIALS
    force: bool = False
    dry_run: bool = False
    allow_breaking: bool = False
    adopt: tuple[str, ...] = ()
    jobs: int | Literal["auto"] | None = None
    stage_dir: Path | None = None
    track: bool = True
    tracking_uri: str | None = None
    try_all_exporters: bool = False
    signing_key: SigningKey | None = None
    report: bool = True
    store: OpenedRepository | None = None
    shard: Shard | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    executor: str = "local"

    def place(self, repository: Path) -> str:
        """Return the repository to publish to as a word of a command line: its path, or the URL of a store."""
        return shlex.quote(relative_text(repository if self.store is None else self.store.copy.url))


@dataclass(frozen=True)
class BuildPlan:
    """What one build has to do.

    Attributes:
        spec: The spec, with aliases of MLflow models replaced by version numbers.
        options: The options.
        repository: Model repository to publish to.
        names: The selected models, in the spec's order.
        pending: Those to build, in the spec's order.
        up_to_date: Reports of the others, by name.
        reasons: Why each pending model is built, by name.
        rejected: Reports of models that would fail in their last step, by name; they are not pending.
        tracking: Where to track the build; None if it is not tracked.
        unconfirmed: Model and version of each published version that the model registry still lists as pending.
    """

    spec: Spec
    options: BuildOptions
    repository: Path
    names: tuple[str, ...]
    pending: tuple[str, ...]
    up_to_date: Mapping[str, ModelReport]
    tracking: Tracking | None = None
    unconfirmed: tuple[tuple[str, int], ...] = ()
    rejected: Mapping[str, ModelReport] = field(default_factory=dict)
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """The model repository to publish to, or its URL."""
        return self.repository if self.options.store is None else self.options.store.copy.url

    @property
    def reports(self) -> dict[str, ModelReport]:
        """Reports of the models that are not pending, by name."""
        return {**self.up_to_date, **self.rejected}

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the whole build."""
        if self.names or self.options.shard is None:
            return self.spec.notes
        return (*self.spec.notes, f"shard {self.options.shard} has no models")

    @property
    def jobs(self) -> int:
        """Number of models that are built at the same time."""
        jobs = available_processors() if self.options.jobs == AUTO_JOBS else self.options.jobs
        return max(1, min(jobs or 1, len(self.pending)))

    @property
    def threads(self) -> int:
        """Number of compute threads of each model."""
        return max(1, available_processors() // self.jobs)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to build, or to confirm in the model registry."""
        return bool(self.pending or self.unconfirmed)
