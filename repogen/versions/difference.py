"""``repogen diff``: what differs between two versions of a model, in one repository or in two. Read-only."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING

from repogen.artifacts.difference import (
    Change,
    DiffReport,
    FileChange,
    Metric,
    OperatorCount,
    VersionRef,
    WeightsDiff,
)
from repogen.artifacts.file_names import ADOPTED_CONFIG, CONFIG_FILE, MODEL_FILE
from repogen.errors import RepogenError, SpecError
from repogen.files import is_file, reason
from repogen.files.content import ContentError, only_files_in
from repogen.files.work_limit import work_limit
from repogen.onnx_graph.summary import GraphSummary, summarize
from repogen.repository.compatibility import differences
from repogen.repository.inventory import directories_of, read_model, require_models
from repogen.repository.layout import config_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from repogen.artifacts.built_model import FileRecord
    from repogen.artifacts.inventory import ModelRecord, VersionRecord
    from repogen.artifacts.versions import Manifest

_MAX_LINES = 2_000
"""Lines of a config.pbtxt above which no line-by-line difference is computed."""
_MAX_LENGTH = 500
_MAX_OPERATORS = 1_000


def compare(name: str, before: tuple[Path, int | None], after: tuple[Path, int | None]) -> DiffReport:
    """Compare two versions of a model.

    Args:
        name: The model.
        before: Repository and number of the first version. Without a number, it is the newest of its repository; the
            one before the second version if both are in one repository.
        after: Repository and number of the second version; the newest one without a number.

    Raises:
        SpecError: A repository, the model or a version does not exist, or is behind a symlink of another user.
        PublishError: A directory can't be read.
        WorkLimitError: The versions need too much time or memory.
    """
    with work_limit(f"model {name}"):
        for repository, _ in (before, after):
            require_models(repository, (name,))
        directories = [path for repository, _ in (before, after) for path in directories_of(repository, (name,))]
        with only_files_in(*directories):
            return _compare(name, before, after)


def _compare(name: str, before: tuple[Path, int | None], after: tuple[Path, int | None]) -> DiffReport:
    second = _find(after[0], read_model(after[0], name), after[1])
    limit = second.version if before[0] == after[0] else None
    first = _find(before[0], read_model(before[0], name), before[1], below=limit)
    if first.version == limit and after[1] is None:
        raise SpecError(
            f"version {limit} of {name} is the newest one, so there is no newer one to compare it with",
            f"`repogen diff {name}` compares it with the version before it; or pass A and B",
            code="repository.no-such-version",
        )
    notes = [f"version {version.version}: {version.problem}" for version in (first, second) if version.problem]
    graphs = [_graph(version, notes) for version in (first, second)]
    manifests = (first.manifest, second.manifest)
    old, new = graphs
    return DiffReport(
        VersionRef(before[0], name, first.version),
        VersionRef(after[0], name, second.version),
        identical=first.manifest is not None
        and second.manifest is not None
        and first.manifest.content_sha256 == second.manifest.content_sha256,
        signature=_signature(*manifests),
        weights=None if old is None or new is None else _weights(old, new),
        facts=tuple(_facts(*manifests, old, new)),
        nodes=None if old is None or new is None else (sum(old.operators.values()), sum(new.operators.values())),
        operators=() if old is None or new is None else _operators(old, new, notes),
        metrics=tuple(_metrics(*manifests)),
        sizes=(first.size, second.size),
        files=tuple(_files(*manifests)),
        config=_config(first, second, notes),
        inputs=_inputs(*manifests),
        notes=tuple(notes),
    )


def _find(repository: Path, model: ModelRecord, number: int | None, *, below: int | None = None) -> VersionRecord:
    existing = ", ".join(str(version.version) for version in model.versions) or "none"
    if number is not None:
        record, problem = model.find(number), f"no version {number}"
    else:
        record = next((version for version in model.versions if below is None or version.version < below), None)
        problem = "no version" if below is None else f"no version below {below} to compare with"
    if record is None:
        raise SpecError(
            f"{model.name} in {repository} has {problem}",
            f"its versions are {existing}",
            code="repository.no-such-version",
        )
    return record


def _graph(version: VersionRecord, notes: list[str]) -> GraphSummary | None:
    path = version.path / MODEL_FILE
    if not is_file(path):
        return None
    try:
        return summarize(path)
    except ContentError as error:
        notes.append(f"version {version.version}: {MODEL_FILE} {error}; the graphs were not compared")
    except OSError as error:
        notes.append(f"version {version.version}: {MODEL_FILE} cannot be read: {reason(error)}")
    return None


def _signature(before: Manifest | None, after: Manifest | None) -> tuple[str, ...] | None:
    return None if before is None or after is None else differences(before.signature, after.signature)


def _weights(before: GraphSummary, after: GraphSummary) -> WeightsDiff:
    old, new = before.tensors, after.tensors
    removed = {name: digest for name, digest in old.items() if name not in new}
    added = {name: digest for name, digest in new.items() if name not in old}
    moved = Counter(removed.values()) & Counter(added.values())
    return WeightsDiff(
        same=sum(new.get(name) == digest for name, digest in old.items()),
        changed=tuple(sorted(name for name, digest in old.items() if name in new and new[name] != digest)),
        added=_without(added, moved),
        removed=_without(removed, moved),
        renamed=sum(moved.values()),
    )


def _without(tensors: Mapping[str, str], moved: Counter[str]) -> tuple[str, ...]:
    """Return the names of tensors, sorted, without those that have the same content under another name."""
    left, names = Counter(moved), []
    for name, digest in sorted(tensors.items()):
        if left[digest]:
            left[digest] -= 1
        else:
            names.append(name)
    return tuple(names)


def _facts(
    before: Manifest | None, after: Manifest | None, old: GraphSummary | None, new: GraphSummary | None
) -> Iterator[Change]:
    first, second = _values(before, old), _values(after, new)
    for name in dict.fromkeys((*first, *second)):
        change = Change(name, first.get(name, ""), second.get(name, ""))
        if change.before != change.after:
            yield change


def _values(manifest: Manifest | None, graph: GraphSummary | None) -> dict[str, str]:
    """Return what is known about a version, as text."""
    values: dict[str, str] = {}
    if graph is not None:
        values |= {f"opset {domain}": str(version) for domain, version in sorted(graph.opsets.items())}
        values["IR version"] = str(graph.ir_version)
    if manifest is not None:
        origin = manifest.provenance
        values |= {
            "max_batch_size": str(manifest.max_batch_size),
            "exporter": origin.exporter,
            "target": origin.target,
            "git commit": origin.git_commit,
        }
        values |= {f"tool {tool}": version for tool, version in sorted(origin.tools.items())}
    return values


def _operators(before: GraphSummary, after: GraphSummary, notes: list[str]) -> tuple[OperatorCount, ...]:
    names = {*before.operators, *after.operators}
    counts = [OperatorCount(name, before.operators.get(name, 0), after.operators.get(name, 0)) for name in names]
    changed = [count for count in counts if count.before != count.after]
    changed.sort(key=lambda count: (-abs(count.after - count.before), count.name))
    if len(changed) > _MAX_OPERATORS:
        notes.append(f"{len(changed):,} operators differ; the first {_MAX_OPERATORS:,} are listed")
    return tuple(changed[:_MAX_OPERATORS])


def _metrics(before: Manifest | None, after: Manifest | None) -> Iterator[Metric]:
    first, second = _parity(before), _parity(after)
    for name in dict.fromkeys((*first, *second)):
        yield Metric(name, first.get(name), second.get(name))


def _parity(manifest: Manifest | None) -> dict[str, float]:
    if manifest is None or not manifest.provenance.parity_cases:
        return {}
    origin = manifest.provenance
    return {
        "parity cases": origin.parity_cases,
        "parity max abs diff": origin.parity_max_abs_diff,
        "parity max rel diff": origin.parity_max_rel_diff,
    }


def _files(before: Manifest | None, after: Manifest | None) -> Iterator[FileChange]:
    if before is None or after is None:
        return
    old, new = ({record.path: record for record in manifest.files} for manifest in (before, after))
    for path in sorted({*old, *new}):
        first, second = old.get(path), new.get(path)
        if first is None or second is None or first.sha256 != second.sha256:
            yield FileChange(path, _size(first), _size(second))


def _size(record: FileRecord | None) -> int | None:
    return None if record is None else record.size


def _inputs(before: Manifest | None, after: Manifest | None) -> tuple[str, ...]:
    if before is None or after is None:
        return ()
    old, new = before.provenance.fingerprint, after.provenance.fingerprint
    return tuple(key for key in sorted({*old, *new}) if old.get(key) != new.get(key))


def _config(before: VersionRecord, after: VersionRecord, notes: list[str]) -> tuple[str, ...] | None:
    """Return the unified diff of the versions' configs; None if one can't be read."""
    texts, names = [], []
    for version in (before, after):
        path = _config_of(version)
        try:
            texts.append((config_bytes(path.parent, path.name) or b"").decode(errors="backslashreplace").splitlines())
        except (RepogenError, OSError) as error:
            notes.append(f"version {version.version}: {CONFIG_FILE} was not compared: {error}")
            return None
        names.append(f"{path.name} of version {version.version}")
    first, second = texts
    if max(len(first), len(second)) > _MAX_LINES:
        return () if first == second else (f"more than {_MAX_LINES:,} lines, so the differences are not listed",)
    return tuple(line[:_MAX_LENGTH] for line in difflib.unified_diff(first, second, names[0], names[1], lineterm=""))


def _config_of(version: VersionRecord) -> Path:
    """Return the version's own config.pbtxt, otherwise the model's from before its adoption, otherwise the model's."""
    model = version.path.parent
    paths = (version.path / CONFIG_FILE, model / ADOPTED_CONFIG)
    return next((path for path in paths if is_file(path)), model / CONFIG_FILE)
