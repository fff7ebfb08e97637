"""A candidate and the champion on one private Triton: everything that the gates ask about, measured."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, DATA_FILE, MODEL_FILE, PYTHON_FILE
from repogen.artifacts.named_file import named_records
from repogen.artifacts.promotion import Figures
from repogen.artifacts.registry import EntryState
from repogen.artifacts.serving import ControlMode
from repogen.artifacts.versions import ModelConfig, StagedVersion
from repogen.errors import RepogenError, ServerError, SmokeError, SpecError
from repogen.registry.gates.ab_timing import alternate
from repogen.registry.gates.evaluate import CANDIDATE, CHAMPION
from repogen.repository.layout import model_dir
from repogen.repository.manifest import read_manifest
from repogen.spec.paths import check_holdout
from repogen.targets import targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.registry import ModelRegistry, RegistryEntry
    from repogen.artifacts.serving import RunningTriton
    from repogen.artifacts.versions import Manifest
    from repogen.registry.promotion.request import PromotionRequest
    from repogen.smoke.inference import WireTensor
    from repogen.smoke.served import ServedVersion
    from repogen.spec.gates import GatesSpec, HoldoutGate

    Request = list[WireTensor]

_VERSION = 1
_LONGER = 3
"""Rounds of bursts to rounds of single requests: fewer are made in the same time, and they vary more."""
_BURSTS_WARM = 3
_LATENCY, _THROUGHPUT, _HOLDOUT = "latency", "throughput", "holdout"


@dataclass(frozen=True)
class Measured:
    """Figures, and where they come from.

    Attributes:
        figures: The figures.
        server: The Triton that was asked, for people; empty when none was.
        indicative: Whether its times only hint at production's.
    """

    figures: Figures
    server: str = ""
    indicative: bool = False


@dataclass(frozen=True)
class _Pair:
    """What one measurement works on."""

    request: PromotionRequest
    progress: Progress
    candidate: StagedVersion
    champion: StagedVersion | None

    @property
    def gates(self) -> GatesSpec:
        return self.request.gates

    def step(self, name: str) -> None:
        self.progress.step(self.request.name, name)


def measure(
    registry: ModelRegistry,
    candidate: RegistryEntry,
    champion: RegistryEntry | None,
    request: PromotionRequest,
    progress: Progress,
) -> Measured:
    """Fetch the versions and measure what the gates ask about; nothing is written but a temporary directory.

    Raises:
        SpecError: The holdout gate's callable or data file is missing.
        SmokeError: No Triton of the candidate's target could be had, or it died.
        TrackingError: Artifacts are gone or altered, or the registry cannot be reached.
    """
    _check_files(request)
    with tempfile.TemporaryDirectory(prefix="repogen-promote-") as scratch:
        repository = Path(scratch) / "repository"
        repository.mkdir()
        Path(scratch).chmod(0o755)  # a Triton in a container may run as another user
        progress.step(request.name, "fetch")
        staged = _fetched(registry, candidate, repository, candidate.name)
        _refuse_ensemble(staged, request.gates)
        rival = None
        if champion is not None and champion.state is not EntryState.FOREIGN and _compares(request.gates):
            rival = _fetched(registry, champion, repository, f"{champion.name}-champion")
        pair = _Pair(request, progress, staged, rival)
        figures = _on_paper(pair, champion)
        if not _asks_triton(request.gates):
            return Measured(figures)
        with _triton(pair, repository) as triton:
            figures = _on_triton(triton, pair, figures)
            ends = triton.endpoint
        said = f"Triton {ends.server_version} ({ends.kind}), {ends.runtime}"
        return Measured(figures, said, indicative=ends.kind == "embedded")


def _on_paper(pair: _Pair, champion: RegistryEntry | None) -> Figures:
    """Return what the manifests say."""
    made, foreign = pair.candidate.manifest, champion is not None and champion.state is EntryState.FOREIGN
    return Figures(
        parity_built=made.provenance.parity_max_abs_diff,
        size=_size(made),
        champion=None if champion is None else champion.version,
        champion_size=None if pair.champion is None else _size(pair.champion.manifest),
        obstacles={CHAMPION: "it was not built by repogen, and can't be served beside the candidate"}
        if foreign
        else {},
    )


def _check_files(request: PromotionRequest) -> None:
    holdout = request.gates.holdout
    if holdout is None:
        return
    wrong = next(check_holdout(holdout.callable, request.root, ()), None)
    if wrong is not None:
        raise SpecError(f"the holdout gate: {wrong.what}", wrong.hint, code="promotion.holdout-callable")
    if holdout.data is not None and not (request.root / holdout.data).is_file():
        raise SpecError(
            f"there is no holdout file {holdout.data}",
            "its path is relative to the spec, or to the working directory without one",
            code="promotion.holdout-data",
        )


def _compares(gates: GatesSpec) -> bool:
    """Tell whether the champion is needed: for a ratio, a drop, or times without limits."""
    return (
        (gates.size is not None and gates.size.max_ratio is not None)
        or (gates.latency is not None and (gates.latency.max_ratio is not None or gates.latency.p95_max_ms is None))
        or gates.throughput is not None
        or (gates.holdout is not None and gates.holdout.max_drop is not None)
    )


def _asks_triton(gates: GatesSpec) -> bool:
    return gates.smoke or any(gate is not None for gate in (gates.latency, gates.throughput, gates.holdout))


def _fetched(registry: ModelRegistry, entry: RegistryEntry, repository: Path, name: str) -> StagedVersion:
    """Download a version into a private repository, as the only version of model ``name``."""
    model = model_dir(repository, name)
    version_dir = model / str(_VERSION)
    version_dir.mkdir(parents=True)
    registry.fetch(entry, version_dir)
    manifest = read_manifest(version_dir)
    for file in (CONFIG_FILE, *(labels.path for labels in named_records(manifest.files))):
        shutil.copyfile(version_dir / file, model / file)
    text = (version_dir / CONFIG_FILE).read_text(encoding="utf-8")
    config = ModelConfig(name, text, manifest.max_batch_size, manifest.signature)
    return StagedVersion(name, repository, _VERSION, config, manifest)


def _refuse_ensemble(staged: StagedVersion, gates: GatesSpec) -> None:
    """Say at once that an ensemble can't be served: the models of its steps are other entries of the registry.

    Raises:
        SmokeError: It is one, and a gate asks Triton.
    """
    if staged.manifest.provenance.exporter == "ensemble" and _asks_triton(gates):
        raise SmokeError(
            f"{staged.name} is an ensemble, and can't be measured without the models of its steps",
            "hold its steps to gates, and promote the ensemble on paper: --gate smoke=off",
            code="promotion.ensemble",
        )


def _size(manifest: Manifest) -> int:
    """Return the bytes that are served: graph and weights, or code."""
    return sum(file.size for file in manifest.files if file.path in {MODEL_FILE, DATA_FILE, PYTHON_FILE})


@contextmanager
def _triton(pair: _Pair, repository: Path) -> Iterator[RunningTriton]:
    from repogen.serving.servers import server  # noqa: PLC0415 - only where one is started

    release, kind = pair.candidate.manifest.provenance.target, pair.request.server
    if release not in targets():
        raise ServerError(
            f"{pair.candidate.name} was built for Triton {release}, which this repogen does not know",
            "use the repogen that built it, or a newer one",
            code="server.target",
        )
    found = server(kind, targets()[release], pair.progress)
    found.preflight()
    found.install()
    pair.step(f"starting Triton ({kind})")
    with found.running(repository, ControlMode.EXPLICIT, strict=True) as triton:
        yield triton


def _on_triton(triton: RunningTriton, pair: _Pair, figures: Figures) -> Figures:
    from repogen.smoke.inference import NoAnswerError  # noqa: PLC0415 - imports gRPC
    from repogen.smoke.staged import smoke_staged  # noqa: PLC0415 - imports gRPC

    if pair.gates.smoke:
        pair.step("smoke")
        figures = replace(figures, smoke=smoke_staged(triton, pair.candidate))
        if figures.smoke is not None and not figures.smoke.passed:
            return _hindered(figures, {CANDIDATE: "not measured: the smoke test failed"})
    if pair.gates.latency is None and pair.gates.throughput is None and pair.gates.holdout is None:
        return figures
    try:
        with _served(triton, pair) as (own, theirs, obstacles):
            figures = _hindered(figures, obstacles)
            return figures if own is None else _compared(pair, own, theirs, figures)
    except NoAnswerError as error:
        raise SmokeError(
            f"Triton stopped answering while it was measured: {error}",
            "nothing was moved; its log says why (--debug)",
            code="smoke.no-answer",
            details=triton.log_tail(200),
        ) from error


@contextmanager
def _served(
    triton: RunningTriton, pair: _Pair
) -> Iterator[tuple[ServedVersion | None, ServedVersion | None, dict[str, str]]]:
    """Serve candidate and champion while the block runs; what does not load is None, with the reason as obstacle."""
    from repogen.smoke.inference import RefusedError  # noqa: PLC0415 - imports gRPC
    from repogen.smoke.served import serving  # noqa: PLC0415 - imports gRPC

    pair.step("loading")
    with ExitStack() as stack:
        served: list[ServedVersion | None] = []
        obstacles: dict[str, str] = {}
        for role, staged in ((CANDIDATE, pair.candidate), (CHAMPION, pair.champion)):
            try:
                served.append(None if staged is None else stack.enter_context(serving(triton, staged)))
            except (RefusedError, SmokeError) as error:
                obstacles[role] = f"Triton does not serve it: {error}"
                served.append(None)
        yield served[0], served[1], obstacles


def _compared(pair: _Pair, own: ServedVersion, theirs: ServedVersion | None, figures: Figures) -> Figures:
    request = own.row()
    rival, refusal = _taking(theirs, request)
    figures = _hindered(figures, refusal)
    if pair.gates.latency is not None:
        pair.step(_LATENCY)
        one = None if rival is None else lambda: rival.ask(request)
        figures = replace(figures, latency=alternate(lambda: own.ask(request), one, pair.request.schedule))
    if pair.gates.throughput is not None:
        pair.step(_THROUGHPUT)
        size = own.burst_size()
        many = None if rival is None else lambda: rival.ask_many(request, size)
        longer = replace(
            pair.request.schedule,
            round_seconds=_LONGER * pair.request.schedule.round_seconds,
            warm_up=_BURSTS_WARM,
            typical=statistics.fmean,  # throughput counts every hiccup
        )
        bursts = alternate(lambda: own.ask_many(request, size), many, longer)
        figures = replace(figures, bursts=bursts, burst=size)
    if pair.gates.holdout is not None:
        figures = _judged(pair, pair.gates.holdout, own, theirs, figures)
    return figures


def _hindered(figures: Figures, obstacles: dict[str, str]) -> Figures:
    return replace(figures, obstacles={**figures.obstacles, **obstacles})


def _taking(theirs: ServedVersion | None, request: Request) -> tuple[ServedVersion | None, dict[str, str]]:
    """Return the champion if it takes the candidate's golden row, for only equal work can be compared; or why not."""
    from repogen.smoke.inference import RefusedError  # noqa: PLC0415 - imports gRPC

    if theirs is not None:
        try:
            theirs.ask(request)
        except RefusedError as refusal:
            why = f"it refuses the candidate's inputs: {refusal.message}"
            return None, {_LATENCY: why, _THROUGHPUT: why}
    return theirs, {}


def _judged(
    pair: _Pair, gate: HoldoutGate, own: ServedVersion, theirs: ServedVersion | None, figures: Figures
) -> Figures:
    """Let the user's code judge the candidate and, where the drop is limited, the champion."""
    pair.step(_HOLDOUT)
    try:
        figures = replace(figures, holdout=_figures_of(pair, gate, own))
    except RepogenError as error:
        return _hindered(figures, {_HOLDOUT: _said(error)})
    if theirs is not None and gate.max_drop is not None:
        pair.step(f"{_HOLDOUT} of the champion")
        try:
            figures = replace(figures, champion_holdout=_figures_of(pair, gate, theirs))
        except RepogenError as error:
            return _hindered(figures, {_HOLDOUT: _said(error)})
    return figures


def _figures_of(pair: _Pair, gate: HoldoutGate, served: ServedVersion) -> dict[str, float]:
    from repogen.worker.evaluation.job import HoldoutJob  # noqa: PLC0415 - pydantic builds its decoders at import
    from repogen.worker.evaluation.process import run_holdout  # noqa: PLC0415 - pydantic builds its decoders at import

    root = pair.request.root.absolute()
    data = None if gate.data is None else root / gate.data
    return run_holdout(HoldoutJob(gate.callable, root, data, served.address, gate.timeout_seconds))


def _said(error: RepogenError) -> str:
    return f"{error.where}: {error.message}" if error.where else error.message
