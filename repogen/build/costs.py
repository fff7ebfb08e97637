"""Time and memory that each model's build needed, recorded next to the spec; estimates for models without a record."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from repogen.artifacts.plan import Cost
from repogen.artifacts.report import Status
from repogen.build.shards import estimated_seconds
from repogen.files import read_bytes
from repogen.files.content import ContentError, require_few_values
from repogen.reporting.results import REPORTS, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from repogen.artifacts.report import BuildReport
    from repogen.spec.models import Spec

_FILE = "costs.json"
_WORKER_BYTES = 700_000_000
"""Memory of a worker with torch, the exporters and a small model."""
_COPIES = 6
"""Weights in a worker: the model, its export, the optimized graph, and sessions."""
_HUGGINGFACE_BYTES = 4_000_000_000


class _Record(TypedDict):
    """What was measured of one model."""

    seconds: Annotated[float, Field(gt=0, le=1e9)]
    peak_rss_bytes: Annotated[int, Field(gt=0, le=2**63)]


_RECORDS = TypeAdapter(dict[str, _Record])


def read_costs(spec: Spec) -> dict[str, Cost]:
    """Return the time and memory that a build of each model needs: as an earlier build measured it, or estimated."""
    records = _read(spec.root)
    return {name: _cost(spec, name, records.get(name)) for name in spec.models}


def record_costs(report: BuildReport, root: Path) -> None:
    """Record the time and memory of each model's build, if it was exported: a result from the cache says less.

    Args:
        report: The report of the build.
        root: Directory of the spec.

    Raises:
        OSError: The file can't be written.
    """
    measured: dict[str, _Record] = {
        model.name: {"seconds": round(sum(model.seconds.values()), 3), "peak_rss_bytes": model.peak_rss_bytes}
        for model in report.models
        if model.peak_rss_bytes > 0 and model.status in {Status.PUBLISHED, Status.VERIFIED}
    }
    if measured:
        records = dict(sorted({**_read(root), **measured}.items()))
        write_file(_RECORDS.dump_json(records, indent=1).decode() + "\n", root / REPORTS / _FILE, root)


def _read(root: Path) -> Mapping[str, _Record]:
    try:
        content = read_bytes(root / REPORTS / _FILE)
        require_few_values(content)
        return _RECORDS.validate_json(content)
    except (OSError, ContentError, ValidationError):
        return {}


def _cost(spec: Spec, name: str, record: _Record | None) -> Cost:
    model = spec.models[name]
    if model.resources.memory_mb is not None:
        seconds = estimated_seconds(model) if record is None else record["seconds"]
        return Cost(seconds, model.resources.memory_mb * 2**20, measured=record is not None)
    if record is not None:
        return Cost(record["seconds"], record["peak_rss_bytes"], measured=True)
    memory = _WORKER_BYTES + _COPIES * _source_bytes(spec, name)
    if model.source.kind == "huggingface":
        memory = max(memory, _HUGGINGFACE_BYTES)
    if model.limits.memory_mb is not None:
        memory = min(memory, model.limits.memory_mb * 2**20)
    return Cost(estimated_seconds(model), memory, measured=False)


def _source_bytes(spec: Spec, name: str) -> int:
    """Return the size of the files that a model's source names, as far as they are files."""
    source, size = spec.models[name].source, 0
    for key in source.files:
        value = getattr(source, key)
        with suppress(OSError, TypeError):
            size += (spec.root / value).stat().st_size
    return size
