"""``repogen.tune``: the Triton settings and the passes that make a published model fastest on this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.working_directory import own_default
from repogen.artifacts.progress import Silent
from repogen.artifacts.tune import PARAMETERS
from repogen.distribution import install_command
from repogen.errors import MissingExtraError, SpecError
from repogen.files.url import location
from repogen.registry.mlflow.uri import TRACKING_URI, tracking_of
from repogen.spec.load import load_spec, read_spec
from repogen.spec.models import Spec
from repogen.spec.problems import suggestion
from repogen.stores.open import run
from repogen.stores.selection import served

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from repogen.artifacts.progress import Progress
    from repogen.artifacts.tune import Objective, TuneReport, TuneTracker

_REQUIREMENTS = ("optuna", "ruamel.yaml", "sqlalchemy", "vl_convert")
_THROUGHPUT_CONCURRENCY = 16


def tune(  # noqa: PLR0913 - one parameter per option of `repogen tune`
    model: str,
    *,
    spec: Spec | Path | str = "repogen.yaml",
    repository: Path | str | None = None,
    objective: Objective = "throughput",
    constraints: Sequence[str] = (),
    budget: str | float = "10m",
    trials: int = 50,
    batch: int = 1,
    concurrency: int | None = None,
    rounds: int = 5,
    seconds: float = 1.0,
    exclude: Sequence[str] = (),
    write: bool = False,
    restart: bool = False,
    server: str = "embedded",
    track: bool = True,
    tracking_uri: str | None = None,
    progress: Progress | None = None,
) -> TuneReport:
    """Search for the settings that make a published model fastest, as ``repogen tune`` does.

    Each trial serves the published version with other settings on a real Triton, compares its outputs with the golden
    tensors, and measures it with NVIDIA's perf_analyzer. At the end, the chosen config is measured side by side with
    that of the spec and with Triton's auto-completed config. Trials are stored in the user's cache, so the
    same call continues a search that was interrupted.

    Before the trials, the model is built with other optimization passes. A build that has parity, or, with lossy
    passes, quality within the budget of the spec, is a value of the parameter ``passes``.

    Example::

        report = repogen.tune("digits", objective="throughput", constraints=["p99 < 20ms"], budget="10m")
        print(report.diff)

    Args:
        model: Name of the model.
        spec: A spec file, or a spec that ``repogen.load_spec`` returned.
        repository: The repository, instead of the spec's.
        objective: ``throughput`` for the most rows per second, ``latency`` for the lowest median latency.
        constraints: Limits such as ``p99 < 20ms``, ``throughput > 500`` or ``memory < 2GB``.
        budget: Time for the builds with other passes, at most half of it, and for the trials, in seconds or as text
            such as ``10m``. The comparison comes after them.
        trials: Number of trials, those of an earlier run included.
        batch: Rows of each request.
        concurrency: Number of concurrent requests; 16 for throughput and 1 for latency by default.
        rounds: Rounds of the comparison.
        seconds: Duration of each of its measurements; those of a trial are shorter.
        exclude: Parameters that stay as they are in the spec, such as ``passes``.
        write: Write the chosen settings into the spec, if they are better than its own by more than the noise.
        restart: Discard the trials of an earlier run.
        server: ``embedded``, ``docker`` or a plug-in's.
        track: Track in MLflow where the spec or ``tracking_uri`` says so.
        tracking_uri: MLflow server, instead of ``MLFLOW_TRACKING_URI`` and the spec's.
        progress: Receives progress events; silent by default.

    Returns:
        The trials, the Pareto front, the comparison, and the change to the spec as a diff. ``report.exit_code`` is 1 if
        no config meets the constraints, and 130 after Ctrl-C.

    Raises:
        repogen.errors.SpecError: An argument is wrong, such as ``server``, the model cannot be tuned, or the spec
            cannot be written.
        repogen.errors.BenchError: The published model cannot be measured.
        repogen.errors.ServerError: The server or perf_analyzer cannot be installed or started.
        repogen.errors.TrackingError: The tracking server cannot be reached.
    """
    _require_installed()
    from repogen.build.variant import VariantBuilder  # noqa: PLC0415 - not for --help
    from repogen.tune.constraints import parse_constraints, parse_duration  # noqa: PLC0415 - the same
    from repogen.tune.triton import LoadShape  # noqa: PLC0415 - imports gRPC
    from repogen.tune.tune import TuneRequest  # noqa: PLC0415 - imports Optuna
    from repogen.tune.tune import tune as search  # noqa: PLC0415 - the same

    if objective not in ("throughput", "latency"):
        raise SpecError(f"{objective!r} is not an objective", "use throughput or latency", code="tune.number")
    requests = concurrency if concurrency is not None else _THROUGHPUT_CONCURRENCY if objective == "throughput" else 1
    if min(trials, batch, requests, rounds) < 1 or seconds <= 0:
        message = "trials, batch, concurrency, rounds and seconds must be positive numbers"
        raise SpecError(message, code="tune.number")
    if unknown := [name for name in exclude if name not in PARAMETERS]:
        hint = f"the parameters are {', '.join(PARAMETERS)}"
        raise SpecError(
            f"{unknown[0]!r} is not a parameter", suggestion(unknown, PARAMETERS, hint), code="tune.exclude"
        )
    limits = parse_constraints(constraints)
    duration = parse_duration(str(budget))
    loaded, content = _with_content(spec)
    place = loaded.repository if repository is None else location(repository)
    request = TuneRequest(
        *(loaded, content, model, place, place),
        objective=objective,
        constraints=limits,
        budget=duration,
        trials=trials,
        shape=LoadShape(batch, requests),
        rounds=rounds,
        seconds=seconds,
        server=server,
        write=write,
        restart=restart,
        tracker=_tracker(loaded, tracking_uri) if track else None,
        exclude=tuple(exclude),
        builder=VariantBuilder(loaded, model, tracking_uri),
    )
    events = progress or Silent()
    return run(
        place,
        lambda path: search(replace(request, repository=path), events),
        fetch=lambda path: served(path, (model,)),
        progress=events,
    )


def _require_installed() -> None:
    """Require the packages of the extra ``tune``, without importing them.

    Raises:
        MissingExtraError: At least one is missing.
    """
    missing = [name for name in _REQUIREMENTS if find_spec(name.partition(".")[0]) is None]
    if missing:
        raise MissingExtraError(
            f"tuning needs packages that are not installed: {', '.join(missing)}", install_command("tune")
        )


def _with_content(spec: Spec | Path | str) -> tuple[Spec, bytes]:
    """Return a loaded spec, and the bytes of its file.

    Raises:
        SpecError: The spec is wrong, or its file is not the one that was loaded.
    """
    path = spec.path if isinstance(spec, Spec) else Path(own_default(spec))
    content = read_spec(path)
    if not isinstance(spec, Spec):
        return load_spec(path, content=content), content
    if load_spec(path, spec.release, content=content).models != spec.models:
        raise SpecError(f"{path.name} was changed after it was loaded", "load it again", code="tune.spec-changed")
    return spec, content


def _tracker(spec: Spec, tracking_uri: str | None) -> Callable[[], TuneTracker] | None:
    """Return what opens a tracker; None if tracking is not configured.

    Raises:
        SpecError: The URI is malformed.
    """
    if spec.mlflow is None and tracking_uri is None and not os.environ.get(TRACKING_URI):
        return None
    from repogen.registry.mlflow.access import open_tune_tracker  # noqa: PLC0415 - tracked runs only

    return partial(open_tune_tracker, tracking_of(spec, tracking_uri, spec.root))
