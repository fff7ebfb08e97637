"""``repogen.bench``: PyTorch, ONNX Runtime and Triton side by side on this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repogen.api.spec import optional_spec
from repogen.artifacts.progress import Silent
from repogen.artifacts.serving import NO_CREDENTIALS
from repogen.errors import SpecError
from repogen.files import is_inside
from repogen.stores.open import run
from repogen.stores.selection import served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from repogen.artifacts.bench import BenchReport
    from repogen.artifacts.progress import Progress
    from repogen.artifacts.serving import Credentials
    from repogen.spec.models import Spec


def bench(  # noqa: PLR0913 - one parameter per option of `repogen bench`
    models: Sequence[str] = (),
    *,
    spec: Spec | Path | str | None = "repogen.yaml",
    repository: Path | str | None = None,
    batch: Sequence[int] = (1, 8, 32),
    concurrency: Sequence[int] = (1, 4, 16),
    rounds: int = 5,
    seconds: float = 0.5,
    server: str = "embedded",
    credentials: Credentials = NO_CREDENTIALS,
    progress: Progress | None = None,
) -> BenchReport:
    """Measure the latency and throughput of published models, as ``repogen bench`` does.

    The variants of a model are measured in interleaved rounds, with the same inputs and on the same cores: PyTorch
    eager, torch.compile, ONNX Runtime in process, and Triton through gRPC, HTTP and system shared memory.

    Example::

        report = repogen.bench(["digits"], batch=[1, 8])
        [(row.variant, row.p50.value) for row in report.models[0].rows]

    Args:
        models: Names of the models; all published models of the spec when empty.
        spec: A spec file, or a spec that ``repogen.load_spec`` returned; None to leave out the variants in PyTorch.
        repository: The repository, instead of the spec's.
        batch: Numbers of rows per request.
        concurrency: Numbers of concurrent requests to Triton.
        rounds: Number of measured rounds; one more round warms up.
        seconds: Duration of each measurement.
        server: ``embedded``, ``docker``, ``HOST:PORT`` or a plug-in's.
        credentials: TLS and headers of a server at ``HOST:PORT``.
        progress: Receives progress events; silent by default.

    Returns:
        The machine, and for each model its measurements and the variants that were not measured, with the reason. A
        model that could not be measured has an ``error``, and ``report.exit_code`` is not 0.

    Raises:
        repogen.errors.SpecError: The spec, ``server`` or ``credentials`` are wrong, or the repository or a model does
            not exist.
        repogen.errors.ServerError: The server or NVIDIA's perf_analyzer could not be installed, or the server does not
            respond.
    """
    from repogen.bench.bench import BenchRequest  # noqa: PLC0415 - imports gRPC, which --help does not need
    from repogen.bench.bench import bench as measure  # noqa: PLC0415 - the same

    loaded_spec = optional_spec(spec)
    directory = repository if repository is not None or loaded_spec is None else loaded_spec.repository
    if directory is None:
        raise SpecError("neither a spec nor a repository was given", "pass --repository", code="bench.nothing")
    if min((*batch, *concurrency, rounds), default=0) < 1 or not (batch and concurrency) or seconds <= 0:
        raise SpecError("batch, concurrency, rounds and seconds must be positive numbers", code="bench.number")
    request = BenchRequest(
        repository=Path(directory),
        models=tuple(dict.fromkeys(models)),
        spec=loaded_spec,
        batches=tuple(sorted(set(batch))),
        concurrencies=tuple(sorted(set(concurrency))),
        rounds=rounds,
        seconds=seconds,
        server=server,
        credentials=credentials,
    )
    events = progress or Silent()
    report = run(
        directory,
        lambda path: measure(replace(request, repository=path), events),
        fetch=lambda path: served(path, request.models),
        progress=events,
    )
    if loaded_spec is not None:
        _store(report, loaded_spec)
    return report


def _store(report: BenchReport, spec: Spec) -> None:
    """Store the measurements for reports, unless the directory can't be written or is in the repository."""
    from repogen.reporting.results import REPORTS, write_bench_results  # noqa: PLC0415 - not for --help

    directory = spec.root / REPORTS
    if not is_inside(directory, report.repository):
        with suppress(OSError):
            write_bench_results(report, directory)
