"""The sections of a model in a repository: its versions, what changed between them, and how they were built.

Everything is read from manifests and config.pbtxt, which may be hostile: numbers of rows are limited here, and lengths
of texts where the page is rendered.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from repogen.reporting.html.build_sections import CONFIG, config_parts, provenance_parts, tensor_table
from repogen.reporting.html.charts import Axis, Value, row_chart
from repogen.reporting.html.parts import Notes, Section, Table, Text
from repogen.reporting.json import provenance_document, tensor_documents
from repogen.reporting.notes import size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from repogen.artifacts.inventory import ModelRecord, VersionRecord
    from repogen.artifacts.versions import Manifest
    from repogen.reporting.html.charts import RowChart
    from repogen.reporting.html.parts import Part
    from repogen.reporting.json_types import ProvenanceDocument, TensorDocument

MAX_VERSIONS = 30
_MAX_CHANGES = 20
_SHORT = 12
_MIB = 2**20


def repository_sections(model: ModelRecord, config: str, contents: Mapping[str, tuple[str, int]]) -> Iterator[Section]:
    """Yield the sections of one model of a repository.

    Args:
        model: The model.
        config: Text of its config.pbtxt; empty if it has none that can be read.
        contents: Model and version by ``Manifest.content_sha256``, for the steps of ensembles.
    """
    if model.problem:
        yield Section("Problem", (Text(model.problem, bad=True),))
    yield Section("Versions", tuple(_version_parts(model)))
    lineage = tuple(_lineage_parts(model, contents))
    if lineage:
        yield Section("Lineage", lineage)
    current = current_version(model)
    if current is not None and current.manifest is not None:
        signature = current.manifest.signature
        inputs, outputs = (tensor_documents(tensors) for tensors in (signature.inputs, signature.outputs))
        table = tensor_table(cast("list[TensorDocument]", inputs), cast("list[TensorDocument]", outputs))
        yield Section(f"Inputs and outputs of version {current.version}", (table,))
    if config:
        yield Section(CONFIG, tuple(config_parts(config)))
    if current is not None and current.manifest is not None:
        origin = cast("ProvenanceDocument", provenance_document(current.manifest.provenance))
        yield Section(f"Provenance of version {current.version}", tuple(provenance_parts(origin)))


def current_version(model: ModelRecord) -> VersionRecord | None:
    """Return the newest version that is served, or else the newest one."""
    served = next((version for version in model.versions if version.served), None)
    return served or next(iter(model.versions), None)


def _version_parts(model: ModelRecord) -> Iterator[Part]:
    versions = model.versions[:MAX_VERSIONS]
    rows = tuple(_version_row(model, version) for version in versions)
    headings = ("Version", "State", "Created (UTC)", "Size", "Target", "Exporter", "Parity error", "Nodes", "Commit")
    problems = frozenset(index for index, version in enumerate(versions) if version.manifest is None)
    yield Table("Versions, newest first", headings, rows, frozenset({3, 6, 7}), bad=problems)
    if len(model.versions) > MAX_VERSIONS:
        yield Text(f"The newest {MAX_VERSIONS} of {len(model.versions)} versions.")
    notes = tuple(f"version {each.version}: {each.problem}" for each in versions if each.problem)
    if notes:
        yield Notes(notes)
    documented = [(each, each.manifest) for each in versions if each.manifest is not None]
    if len(documented) > 1:
        yield from _version_charts(documented)


def _version_row(model: ModelRecord, version: VersionRecord) -> tuple[str, ...]:
    state = ["served"] if version.served else []
    state += ["held"] if version.version == model.held else []
    state += [f"alias {alias}" for alias in version.aliases]
    start = (
        str(version.version),
        ", ".join(state) or "not served",
        version.created.removesuffix("Z").replace("T", " "),
    )
    if version.manifest is None:
        return (*start, size_text(version.size), "-", "-", "-", "-", "-")
    origin = version.manifest.provenance
    nodes = f"{origin.nodes_optimized:,}" if origin.nodes_optimized else "-"
    return (
        *start,
        size_text(version.size),
        origin.target,
        origin.exporter,
        _parity_text(version.manifest),
        nodes,
        origin.git_commit[:_SHORT] or "-",
    )


def parity_error(manifest: Manifest) -> float | None:
    """Return the largest absolute error that a version was published with; None if it was not measured."""
    origin = manifest.provenance
    return origin.parity_max_abs_diff if origin.parity_cases and math.isfinite(origin.parity_max_abs_diff) else None


def _parity_text(manifest: Manifest) -> str:
    error = parity_error(manifest)
    if error is None:
        return "-"
    return error_text(error) if manifest.provenance.lossy is None else f"lossy, {error_text(error)}"


def error_text(error: float) -> str:
    """Return an error with two digits.

    >>> error_text(0.0), error_text(3.14e-6)
    ('0', '3.1e-06')
    """
    return f"{error:.1e}" if error else "0"


def _version_charts(versions: Sequence[tuple[VersionRecord, Manifest]]) -> Iterator[RowChart]:
    sizes = [Value(str(record.version), record.size / _MIB, size_text(record.size)) for record, _ in versions]
    yield row_chart(Axis("Size by version, on a scale in MiB", "Version", "Size"), sizes)
    errors = [Value(str(record.version), parity_error(manifest), _parity_text(manifest))
              for record, manifest in versions]  # fmt: skip
    if any(value.number is not None for value in errors):
        yield row_chart(Axis("Largest parity error by version", "Version", "Error", "dot"), errors)


def _lineage_parts(model: ModelRecord, contents: Mapping[str, tuple[str, int]]) -> Iterator[Part]:
    versions = [
        (each.version, each.manifest) for each in model.versions[: MAX_VERSIONS + 1] if each.manifest is not None
    ]
    steps = tuple(
        (str(version), name, _step_text(digest, contents))
        for version, manifest in versions[:MAX_VERSIONS]
        for name, digest in manifest.provenance.steps.items()
    )
    if steps:
        yield Table("Versions of the models that an ensemble was built from", ("Version", "Model", "Built from"), steps)
    changes = tuple(
        (f"{older} → {newer}", _changes_text(before, after)) for (newer, after), (older, before) in pairwise(versions)
    )
    if changes:
        yield Table("What changed between versions", ("Versions", "Inputs of the build that differ"), changes)


def _step_text(digest: str, contents: Mapping[str, tuple[str, int]]) -> str:
    if digest not in contents:
        return f"{digest[:_SHORT]}…, which the repository does not have"
    return f"version {contents[digest][1]}"


def _changes_text(before: Manifest, after: Manifest) -> str:
    old, new = before.provenance.fingerprint, after.provenance.fingerprint
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    texts = [_change_text(key, old.get(key), new.get(key)) for key in keys[:_MAX_CHANGES]]
    more = [f"{len(keys) - _MAX_CHANGES} more"] if len(keys) > _MAX_CHANGES else []
    return "; ".join([*texts, *more]) or "nothing"


def _change_text(key: str, old: str | None, new: str | None) -> str:
    """Return a change; versions of distributions and targets are short enough to print.

    >>> _change_text("dist:torch", "2.7", "2.8"), _change_text("weights", "ab", None)
    ('dist:torch 2.7 → 2.8', 'weights removed')
    """
    if old is None or new is None:
        return f"{key} {'removed' if new is None else 'added'}"
    return f"{key} {old} → {new}" if key.startswith("dist:") or key == "target" else f"{key} changed"
