"""Measures a candidate and the champion with the gates of a promotion, on one private Triton where a gate needs it."""

from __future__ import annotations

import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard, cast

from repogen.artifacts.file_names import CONFIG_FILE
from repogen.artifacts.registry import EntryState
from repogen.artifacts.serving import ControlMode
from repogen.artifacts.versions import ModelConfig, StagedVersion
from repogen.errors import GateError, ServerError, SmokeError, SpecError, first_line
from repogen.files.temporary import temporary_directory
from repogen.plugins import is_built_in, load_plugin
from repogen.registry.ensembles import download_steps
from repogen.registry.gates.interface import Candidate, Champion, NotMeasuredError, Requires, Versions, failed_limits
from repogen.repository.ensembles import with_suffix
from repogen.repository.layout import model_dir
from repogen.repository.manifest import read_manifest
from repogen.repository.own_config import stage_config
from repogen.serving.servers import open_triton, prepare_server
from repogen.smoke.inference import NoResponseError, RefusedError
from repogen.smoke.served import serving
from repogen.smoke.staged import smoke_staged
from repogen.spec.gates import GROUP
from repogen.targets import find_target
from repogen.triton_config.text.parse import read_config_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import BaseModel

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.promotion import GateResult
    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.serving import RunningTriton
    from repogen.artifacts.versions import Manifest
    from repogen.registry.gates.interface import Gate
    from repogen.registry.promotion.request import PromotionRequest
    from repogen.smoke.served import ServedVersion

_VERSION = 1
_CHAMPION = ".champion"
"""Suffix of the champion's models; the name of a model of repogen has no dot."""


@dataclass(frozen=True)
class GateRun:
    """The results of the gates, and where they were measured.

    Attributes:
        results: One result per limit, in the order of the gates.
        server: Human-readable description of the Triton; empty when none was started.
        indicative: Whether its times can differ from those in production.
    """

    results: tuple[GateResult, ...]
    server: str = ""
    indicative: bool = False


@dataclass(frozen=True)
class _ActiveGate:
    """A gate with its options."""

    name: str
    gate: Gate[BaseModel, object]
    options: BaseModel

    def results(self, versions: Versions) -> tuple[GateResult, ...]:
        """Measure and judge.

        Raises:
            NoResponseError: The server stopped responding.
            GateError: The gate of a plug-in raised an exception.
        """
        try:
            measurement = self.gate.measure(self.options, versions)
            return tuple(self.gate.judge(self.options, measurement))
        except (NotMeasuredError, RefusedError) as error:
            return tuple(failed_limits(self.name, self.options, str(error)))
        except NoResponseError:
            raise
        except Exception as error:
            if is_built_in(GROUP, self.name):
                raise
            raise GateError(
                f"gate {self.name!r} failed: {type(error).__name__}: {first_line(error)}",
                "report this to the author of the plug-in",
                code="gate.plugin",
                details=traceback.format_exc(),
            ) from error


@dataclass(frozen=True)
class _Run:
    """One run of the gates: the versions on disk, and what to measure."""

    request: PromotionRequest
    progress: Progress
    gates: tuple[_ActiveGate, ...]
    candidate: StagedVersion
    champion: StagedVersion | None

    def step(self, name: str) -> None:
        self.progress.step(self.request.name, name)

    def results(self, versions: Versions) -> tuple[GateResult, ...]:
        results: list[GateResult] = []
        for active in self.gates:
            if active.gate.requires is Requires.SERVED and versions.candidate.served is not None:
                self.step(active.name)
            results += active.results(versions)
        return tuple(results)


def run_gates(
    registry: ModelRegistry,
    candidate: RegistryEntry,
    champion: RegistryEntry | None,
    request: PromotionRequest,
    progress: Progress,
) -> GateRun:
    """Download the versions and run the gates; only a temporary directory is written.

    Raises:
        SpecError: A file that a gate's options name is missing.
        GateError: The gate of a plug-in raised an exception.
        SmokeError: No Triton of the candidate's target could be started, or it ended.
        TrackingError: Artifacts are missing or modified, or the registry cannot be reached.
    """
    gates = tuple(_active(name, options) for name, options in request.gates.active().items())
    for active in gates:
        active.gate.check(active.options, request.root)
    required = max(active.gate.requires for active in gates)
    with temporary_directory() as scratch:
        repository = scratch / "repository"
        repository.mkdir()
        scratch.chmod(0o755)  # a Triton in a container may run as another user
        progress.step(request.name, "fetch")
        staged, steps = _download(registry, candidate, repository)
        staged_champion: StagedVersion | None = None
        champion_steps: tuple[Manifest, ...] = ()
        if _can_compare(champion, gates):
            staged_champion, champion_steps = _download(registry, champion, repository, _CHAMPION)
        run = _Run(request, progress, gates, staged, staged_champion)
        versions = Versions(
            Candidate(staged.manifest, steps),
            replace(_champion(champion, staged_champion), steps=champion_steps),
            request.root,
            request.schedule,
        )
        if required is Requires.MANIFEST:
            return GateRun(run.results(versions))
        with _triton(run, repository) as triton:
            results = _results_on_triton(run, triton, versions, required)
            endpoint = triton.endpoint
        description = f"Triton {endpoint.server_version} ({endpoint.kind}), {endpoint.runtime}"
        return GateRun(results, description, indicative=endpoint.kind == "embedded")


def _active(name: str, options: BaseModel) -> _ActiveGate:
    gate = cast("type[Gate[BaseModel, object]]", load_plugin(GROUP, name))
    missing_members = [
        member for member in ("requires", "check", "compares", "measure", "judge") if not hasattr(gate, member)
    ]
    if missing_members:
        raise SpecError(
            f"plug-in {name!r} of {GROUP} does not define {', '.join(missing_members)}",
            "see repogen.registry.gates.interface.Gate",
            code="plugin.interface",
        )
    return _ActiveGate(name, gate(), options)


def _can_compare(champion: RegistryEntry | None, gates: tuple[_ActiveGate, ...]) -> TypeGuard[RegistryEntry]:
    is_repogens = champion is not None and champion.state is not EntryState.FOREIGN
    return is_repogens and any(active.gate.compares(active.options) for active in gates)


def _champion(entry: RegistryEntry | None, staged: StagedVersion | None) -> Champion:
    if entry is None:
        return Champion()
    foreign = entry.state is EntryState.FOREIGN
    obstacle = "it was not built by repogen, and can't be served next to the candidate" if foreign else ""
    return Champion(entry.version, None if staged is None else staged.manifest, obstacle=obstacle)


def _download(
    registry: ModelRegistry, entry: RegistryEntry, repository: Path, suffix: str = ""
) -> tuple[StagedVersion, tuple[Manifest, ...]]:
    """Download a version into a private repository, as the only version of its model; an ensemble with its steps.

    Args:
        registry: The registry.
        entry: The version.
        repository: The private repository.
        suffix: Text to add to the names of the models.

    Returns:
        The version, and the manifests of the models that it uses as an ensemble.
    """
    name = f"{entry.name}{suffix}"
    version_dir = model_dir(repository, name) / str(_VERSION)
    version_dir.mkdir(parents=True)
    registry.fetch(entry, version_dir)
    manifest = read_manifest(version_dir)
    text = read_config_text(version_dir / CONFIG_FILE, f"config.pbtxt of {entry.name} version {entry.version}")
    if suffix and manifest.provenance.steps:
        text = with_suffix(text, entry.name, manifest.provenance.steps, suffix)
    config = ModelConfig(name, text, manifest.max_batch_size, manifest.signature)
    staged = StagedVersion(name, repository, _VERSION, config, manifest)
    stage_config(staged, version_dir)
    return staged, download_steps(registry, entry, manifest, repository, suffix)


@contextmanager
def _triton(run: _Run, repository: Path) -> Iterator[RunningTriton]:
    release, kind = run.candidate.manifest.provenance.target, run.request.server
    target = find_target(release)
    if target is None:
        raise ServerError(
            f"{run.candidate.name} was built for Triton {release}, which this version of repogen does not support",
            "use the version of repogen that built it, or a newer one",
            code="server.target",
        )
    server = prepare_server(kind, target, run.progress, credentials=run.request.credentials)
    with open_triton(server, repository, ControlMode.EXPLICIT, run.progress, strict=True) as triton:
        yield triton


def _results_on_triton(
    run: _Run, triton: RunningTriton, versions: Versions, required: Requires
) -> tuple[GateResult, ...]:
    if any(active.gate.requires is Requires.SMOKE_TEST for active in run.gates):
        run.step("smoke")
        smoke = smoke_staged(triton, run.candidate)
        obstacle = "" if smoke.passed else "not measured: the smoke test failed"
        versions = replace(versions, candidate=replace(versions.candidate, smoke=smoke, obstacle=obstacle))
    if required < Requires.SERVED or versions.candidate.obstacle:
        return run.results(versions)
    try:
        with _serve(run, triton, versions) as served_versions:
            return run.results(served_versions)
    except NoResponseError as error:
        raise SmokeError(
            f"Triton stopped responding while the gates were measured: {error}",
            "the alias was not moved; --debug shows Triton's log",
            code="smoke.no-answer",
            details=triton.log_tail(200),
        ) from error


@contextmanager
def _serve(run: _Run, triton: RunningTriton, versions: Versions) -> Iterator[Versions]:
    """Serve candidate and champion during the block; one that does not load has an obstacle."""
    run.step("loading")
    with ExitStack() as stack:
        candidate, obstacle = _load(stack, triton, run.candidate)
        versions = replace(versions, candidate=replace(versions.candidate, served=candidate, obstacle=obstacle))
        if run.champion is not None:
            champion, obstacle = _load(stack, triton, run.champion)
            versions = replace(versions, champion=replace(versions.champion, served=champion, obstacle=obstacle))
        yield versions


def _load(stack: ExitStack, triton: RunningTriton, staged: StagedVersion) -> tuple[ServedVersion | None, str]:
    """Return the served version, or None and the reason why Triton does not serve it."""
    try:
        return stack.enter_context(serving(triton, staged)), ""
    except (RefusedError, SmokeError) as error:
        return None, f"Triton does not serve it: {error}"
