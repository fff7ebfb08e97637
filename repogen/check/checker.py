"""Checks model repositories: from paths to findings."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from repogen.artifacts.file_names import CONFIG_FILE, MANIFEST_FILE
from repogen.check.config_text import ConfigText, read_config
from repogen.check.files import (
    admission_findings,
    case_findings,
    link_findings,
    manifest_findings,
    model_file,
    model_filename_findings,
    named_file_findings,
    same_name_findings,
    version_file_findings,
)
from repogen.check.layout import is_foreign_config, policy_findings, root_findings, unreadable, version_findings
from repogen.errors import RepogenError, SpecError
from repogen.files import exists, is_directory, is_file, raise_if_exhausted
from repogen.files.paths import real_path
from repogen.files.work_limit import COMMAND_SECONDS, WorkLimitError, raise_if_exceeded, shared, work_limit
from repogen.onnx_graph.facts import read_graph
from repogen.repository.layout import directory_of_step, is_model, triton_version, triton_versions
from repogen.repository.version_policy import served_versions
from repogen.serving.admission import unexamined_code
from repogen.targets import DEFAULT_RELEASE, find_target, targets
from repogen.triton_config.rules.config_rules import config_findings
from repogen.triton_config.rules.ensemble_repository import ModelInRepository, cycle_findings, ensemble_findings
from repogen.triton_config.rules.findings import RULES, Finding
from repogen.triton_config.rules.graph import batch_size, graph_findings
from repogen.triton_config.rules.identity import is_ensemble, is_onnx
from repogen.triton_config.rules.target import target_findings
from repogen.triton_config.text.parse import empty_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from repogen.targets import Target
    from repogen.triton_config.rules.findings import Severity
    from repogen.triton_config.text.parse import ModelConfig

MAX_OF_RULE = 1_000
"""Findings of one rule in one model."""
_MAX_FINDINGS = 50_000
"""Findings of a check, with up to 5,000 characters each."""


@dataclass(frozen=True)
class Selection:
    """Which findings to report.

    Attributes:
        select: Codes or prefixes of codes to report; empty for all.
        ignore: Codes or prefixes of codes to leave out.
        per_path: Pattern of paths relative to ``root`` -> codes or prefixes of codes to leave out there.
        root: Directory that the patterns are relative to.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_path: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    root: Path = Path()

    def __post_init__(self) -> None:
        """Validate the codes.

        Raises:
            SpecError: No rule has such a code.
        """
        for code in dict.fromkeys((*self.select, *self.ignore, *chain.from_iterable(self.per_path.values()))):
            if not code or not any(rule.startswith(code) for rule in RULES):
                raise SpecError(
                    f"{code!r} is not the code of a rule",
                    "use RG101, or RG1 for a family; `repogen explain` lists all codes",
                    code="check.code",
                )

    def selects(self, finding: Finding) -> bool:
        """Return whether to report a finding."""
        prefixes = {finding.code[:length] for length in range(1, len(finding.code) + 1)}
        if self.select and prefixes.isdisjoint(self._selected):
            return False
        return prefixes.isdisjoint(self._ignored) and prefixes.isdisjoint(self._ignored_at(finding.path))

    @cached_property
    def _selected(self) -> frozenset[str]:
        return frozenset(self.select)

    @cached_property
    def _ignored(self) -> frozenset[str]:
        return frozenset(self.ignore)

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], frozenset[str]], ...]:
        """The patterns as expressions, compiled once, and their codes; a pattern also matches all below it."""
        return tuple(
            (re.compile(translate(each)), frozenset(codes))
            for pattern, codes in self.per_path.items()
            for each in (pattern, f"{pattern.rstrip('/')}/*")
        )

    @cached_property
    def _ignored_by_path(self) -> dict[str, frozenset[str]]:
        return {}

    def _ignored_at(self, path: str) -> frozenset[str]:
        """Return the codes to leave out for a file or directory; many findings have the same path."""
        if not self.per_path:
            return frozenset()
        if path not in self._ignored_by_path:
            relative = Path(os.path.relpath(path, self.root)).as_posix()
            codes = (codes for pattern, codes in self._patterns if pattern.match(relative))
            self._ignored_by_path[path] = frozenset(chain.from_iterable(codes))
        return self._ignored_by_path[path]


class _Limit:
    """Limits findings: a config of 1 MB can violate a rule hundreds of thousands of times.

    Args:
        selection: Which findings to report; others do not count.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._left = _MAX_FINDINGS

    def of(self, directory: Path, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the first findings of each rule, and then one for each rule that has others.

        Args:
            directory: What the findings are about.
            findings: All of them.
        """
        counts: Counter[str] = Counter()
        omitted: dict[str, set[Severity]] = {}
        for finding in findings:
            if not self._selection.selects(finding):
                continue
            counts[finding.code] += 1
            if counts[finding.code] <= MAX_OF_RULE and self._left:
                self._left -= 1
                yield finding
            else:
                omitted.setdefault(finding.code, set()).add(finding.severity)
        for code, severities in omitted.items():
            severity: Severity = "error" if "error" in severities else "warning"
            hint = "correct those that are listed, and run the command again"
            yield Finding(code, severity, "more findings of this rule are not listed", hint, path=str(directory))


@dataclass(frozen=True)
class _Model:
    """A model's directory.

    Attributes:
        directory: Its path.
        text: Its config.pbtxt; None if it has none.
        versions: The versions that Triton reads from the names of its directories.
        served: The versions that Triton serves, newest first.
        limit: The finding that its config.pbtxt needs too much time or memory; None if it does not.
    """

    directory: Path
    text: ConfigText | None
    versions: tuple[int, ...]
    served: tuple[int, ...]
    limit: Finding | None = None

    @property
    def config(self) -> ModelConfig | None:
        """The parsed config.pbtxt; None if it does not exist or can't be parsed."""
        return None if self.text is None else self.text.config

    @property
    def examined(self) -> tuple[int, ...]:
        """The versions whose files are read, the served ones first: of links to one directory, only one."""
        numbers: dict[str, int] = {}
        for number in (*self.served, *self.versions):
            numbers.setdefault(str(real_path(self.version_dir(number))), number)
        return tuple(numbers.values())

    def version_dir(self, version: int) -> Path:
        """Return the directory from which Triton loads a version; it need not exist."""
        return self.directory / str(version)


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Attributes:
        findings: Findings, sorted by path and line.
        models: Number of models that were checked.
        unexamined: One line for each model with code, which a check does not examine.
    """

    findings: tuple[Finding, ...]
    models: int
    unexamined: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Request:
    """A repository to check.

    Attributes:
        path: A path as the user named it.
        root: The repository's directory.
        models: Names of the models to check; None for all models and the root itself.
    """

    path: Path
    root: Path
    models: frozenset[str] | None

    def includes(self, model: _Model) -> bool:
        """Return whether to check a model of the repository."""
        return self.models is None or model.directory.name in self.models


def check(
    *paths: Path | str,
    release: str = DEFAULT_RELEASE,
    selection: Selection = Selection(),
    texts: Mapping[str, str] = MappingProxyType({}),
) -> CheckReport:
    """Report configurations that Triton rejects, crashes on, or loads with unexpected behavior.

    Args:
        paths: Repositories, models' directories, or files in them.
        release: The Triton release that will serve them.
        selection: Which findings to report.
        texts: Text to check instead of a config.pbtxt, by the path of the file in findings.

    Raises:
        SpecError: A path does not exist, there is no model in it, or the release is unknown.
        WorkLimitError: The models together need too much time or memory; a single one is a finding.
    """
    target = find_target(release)
    if target is None:
        raise SpecError(f"release {release!r} is unknown", f"use one of {', '.join(targets())}", code="check.release")
    requests = _requests(Path(path) for path in paths)
    subject = str(requests[0].path) if len(requests) == 1 else f"{len(requests)} repositories"
    try:
        with work_limit(subject, COMMAND_SECONDS):
            limit = _Limit(selection)
            reports = [_check_repository(request, target, texts, limit) for request in requests]
    except OSError as error:  # what cannot be read in a model is a finding
        raise_if_exhausted(error)
        raise _unreadable_error(Path(str(error.filename)), error) from error
    findings = [finding for report in reports for finding in report.findings]
    if target.unknown_note:
        hint = "upgrade repogen, if there is a newer version"
        roots = (str(request.root) for request in requests)
        notes = (Finding("RG303", "warning", target.unknown_note, hint, path=root) for root in roots)
        findings += [finding for finding in notes if selection.selects(finding)]
    distinct = dict.fromkeys(findings)
    by_place = sorted(distinct, key=lambda finding: (finding.path, finding.line, finding.column, finding.code))
    unexamined = dict.fromkeys(line for report in reports for line in report.unexamined)
    return CheckReport(tuple(by_place), sum(report.models for report in reports), tuple(unexamined))


def _requests(paths: Iterable[Path]) -> list[_Request]:
    """Return one request per repository."""
    requests: dict[Path, _Request] = {}
    for path in paths:
        try:
            path.stat()
            real_path = _without_dots(path)
            model = _model_of(real_path.absolute())
            repository = _repository_in(real_path) if model is None else None
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            hint = "specify a repository, a model's directory, or a file in one"
            raise SpecError(f"{path} does not exist", hint, code="check.path") from error
        except OSError as error:
            raise_if_exhausted(error)
            raise _unreadable_error(path, error) from error
        if repository is not None:
            hint = f"check the repository: repogen check {shlex.quote(str(path / repository.name))}"
            raise SpecError(f"{path} contains no models, but {repository.name} does", hint, code="check.path")
        root = real_path if model is None else model.parent
        names = None if model is None else frozenset({model.name})
        earlier = requests.setdefault(root.absolute(), _Request(path, root, names))
        names = None if names is None or earlier.models is None else earlier.models | names
        requests[root.absolute()] = replace(earlier, models=names)
    return list(requests.values())


def _unreadable_error(path: Path, error: OSError) -> SpecError:
    return SpecError(f"{path} cannot be read: {error.strerror}", "specify a readable directory", code="check.path")


def _without_dots(path: Path) -> Path:
    """Return a path without ``..``: its links are followed up to the last name, as the kernel does."""
    if ".." not in path.parts:
        return path
    return path.resolve() if path.name == ".." else path.parent.resolve() / path.name


def _model_of(path: Path) -> Path | None:
    """Return the directory of the model that a path is, or is in; None for a repository."""
    if path.is_dir() and _contains_models(path):
        return None
    model = next((directory for directory in (path, *path.parents) if _is_readable_model(directory)), None)
    return None if model is None else _without_version(model)


def _is_readable_model(directory: Path) -> bool:
    try:
        return is_directory(directory) and is_model(directory)
    except OSError:  # a directory above the user's path that may be traversed, but not listed
        return False


def _repository_in(directory: Path) -> Path | None:
    """Return the first directory in another one that contains models, if the other one contains none."""
    directories = sorted(filter(is_directory, directory.iterdir())) if is_directory(directory) else []
    if any(map(_is_readable_model, directories)):
        return None
    return next((path for path in directories if os.access(path, os.R_OK) and _contains_models(path)), None)


def _contains_models(directory: Path) -> bool:
    """Return whether a directory is a repository: it contains models, other than versions with their own config."""
    children = (entry for entry in directory.iterdir() if is_directory(entry) and not entry.name.isdigit())
    # a version that repogen built may have been renamed
    return any(exists(entry / CONFIG_FILE) and not exists(entry / MANIFEST_FILE) for entry in children)


def _without_version(directory: Path) -> Path:
    """Return the model's directory for a version that repogen built, which contains a copy of its config."""
    is_version = triton_version(directory.name) is not None or exists(directory / MANIFEST_FILE)
    return directory.parent if is_version and exists(directory.parent / CONFIG_FILE) else directory


def _check_repository(request: _Request, target: Target, texts: Mapping[str, str], limit: _Limit) -> CheckReport:
    """Check the requested models of a repository.

    Raises:
        SpecError: There is nothing to check.
    """
    models = _models(request, target, texts)
    requested = [model for _, model in sorted(models.items()) if request.includes(model)]
    is_empty = request.models is not None or not request.root.is_dir() or not any(request.root.iterdir())
    in_root = [] if is_empty else list(root_findings(request.root))
    if not requested and not in_root:
        raise SpecError(
            f"{request.path} contains no model to check",
            "specify a repository (a directory of model directories), a model directory, or a file in one",
            code="check.nothing",
        )
    neighbors = {name: _neighbor(model) for name, model in models.items()}
    same_names = same_name_findings(request.root, (model.directory.name for model in requested))
    findings = list(limit.of(request.root, chain(in_root, same_names)))
    for model in requested:
        findings += _limited_findings(model, limit.of(model.directory, _reported_findings(model, neighbors, target)))
    return CheckReport(tuple(findings), len(requested), tuple(_unexamined(requested)))


def _limited_findings(model: _Model, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a model; the last one is that the model needs too much time or memory, if it does."""
    listed = [] if model.limit is None else [model.limit]
    try:
        with work_limit(f"model {model.directory.name}"):
            for finding in findings:
                listed.append(finding)  # noqa: PERF402 - those before an error are listed
    except WorkLimitError as error:
        raise_if_exceeded()
        listed.append(unreadable(model.directory, error))
    return listed


def _reported_findings(model: _Model, neighbors: dict[str, ModelInRepository], target: Target) -> Iterator[Finding]:
    """Yield the findings of a model, except those that comments in its config suppress."""
    for finding in _model_findings(model, neighbors, target):
        if model.text is None or not model.text.suppresses(finding):
            yield finding


def _unexamined(models: Iterable[_Model]) -> Iterator[str]:
    for model in models:
        try:
            with work_limit(f"model {model.directory.name}"):
                code = unexamined_code(model.directory, model.config or empty_config())
        except (OSError, WorkLimitError):  # a finding has the reason
            raise_if_exceeded()
            continue
        if code:
            yield f"{model.directory.name}: {code}"


def _models(request: _Request, target: Target, texts: Mapping[str, str]) -> dict[str, _Model]:
    """Return the requested models, and those that their ensembles use, by name; others need not be read."""
    if request.models is None:
        entries = sorted(request.root.iterdir()) if is_directory(request.root) else []
        names = [entry.name for entry in entries if is_directory(entry) and is_model(entry)]
    else:
        names = sorted(request.models)
    models: dict[str, _Model] = {}
    while names:
        name = names.pop()
        directory = None if name in models else directory_of_step(request.root, name)
        if directory is None or not is_model(directory):
            continue
        models[name] = _read_model(directory, target, texts)
        config = models[name].config
        names += [step.model_name for step in config.ensemble_scheduling.step] if config is not None else []
    return models


def _read_model(directory: Path, target: Target, texts: Mapping[str, str]) -> _Model:
    path, limit = directory / CONFIG_FILE, None
    try:
        with work_limit(f"model {directory.name}"):
            text = _read_text(path, target, texts.get(str(path))) if os.path.lexists(path) else None
    except WorkLimitError as error:
        raise_if_exceeded()
        text, limit = ConfigText(path), unreadable(directory, error)
    try:
        versions = tuple(triton_versions(directory))
    except RepogenError:
        versions = ()  # _model_findings reports that the directory cannot be read
    return _Model(directory, text, versions, served_versions(None if text is None else text.config, versions), limit)


def _read_text(path: Path, target: Target, text: str | None) -> ConfigText:
    """Read a config.pbtxt, a file to which links of several models lead only once: it may need several megabytes."""
    if text is not None or not is_file(path) or is_foreign_config(path):
        return read_config(path, target.release, text)
    status, configs = path.stat(), shared("configs")
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in configs:
        configs[key] = read_config(path, target.release, None)
    config: ConfigText = configs[key]
    return config.at(path)


def _neighbor(model: _Model) -> ModelInRepository:
    config = model.config
    complete = config is not None and bool(config.input) and bool(config.output)
    unparsed = model.text is not None and config is None
    return ModelInRepository(config, model.served, None if complete or unparsed else _guessed_batch(model))


def _guessed_batch(model: _Model) -> int | None:
    """Return the max_batch_size that Triton gives a model whose config omits tensors; None if it can't be derived."""
    file = model_file(model.version_dir(model.served[0]), model.config) if model.served else None
    facts = None
    if file is not None and file.suffix == ".onnx" and is_file(file):
        try:
            with work_limit(f"model {model.directory.name}"):
                facts = read_graph(file)[0]
        except WorkLimitError:  # a finding of that model
            raise_if_exceeded()
    return None if facts is None else batch_size(model.config or empty_config(), facts.signature)


def _model_findings(model: _Model, neighbors: dict[str, ModelInRepository], target: Target) -> Iterator[Finding]:
    """Yield the findings of a model; what cannot be read is the last one."""
    try:
        yield from _readable_findings(model, neighbors, target)
    except (OSError, RepogenError) as error:
        if isinstance(error, OSError):
            raise_if_exhausted(error)
        yield unreadable(model.directory, error)


def _readable_findings(model: _Model, neighbors: dict[str, ModelInRepository], target: Target) -> Iterator[Finding]:
    directory, text, config = model.directory, model.text, model.config
    ensemble = config is not None and is_ensemble(config)
    yield from version_findings(directory, model.served, ensemble=ensemble)
    yield from link_findings(directory, directory.parent)
    for finding in admission_findings(directory, config or empty_config()):
        yield replace(finding, path=str(directory))
    yield from case_findings(directory)
    if text is None:
        message = (
            f"{directory.name} has no config.pbtxt: Triton generates one, and treats a dynamic first axis as the batch"
        )
        yield Finding("RG402", "warning", message, "write one", path=str(directory))
    else:
        yield from text.findings
        if config is None:
            return
        yield from text.placed(config_findings(config, directory.name, target))
        yield from text.placed(named_file_findings(directory, config))
        yield from text.placed(policy_findings(model.versions, config))
        if ensemble:
            yield from text.placed(ensemble_findings(config, neighbors))
            yield from text.placed(cycle_findings(directory.name, neighbors))
    for version in model.served:
        yield from version_file_findings(model.version_dir(version), config)
        if text is not None and config is not None:
            yield from text.placed(model_filename_findings(model.version_dir(version), config))
    for version in model.examined:
        yield from manifest_findings(model.version_dir(version))
    yield from _all_graph_findings(model, target)


def _all_graph_findings(model: _Model, target: Target) -> Iterator[Finding]:
    """Yield the findings of each version's graph; those of a version that is not served now are warnings."""
    if model.config is not None and not is_onnx(model.config):
        return
    for version in model.examined:
        for finding in _graph_findings(model, version, target):
            if version not in model.served:
                message = f"{finding.message} (version {version}, which is not served now)"
                yield replace(finding, severity="warning", message=message, fix="")
            else:
                suffix = f" (version {version})" if len(model.served) > 1 else ""
                yield replace(finding, message=finding.message + suffix)


def _graph_findings(model: _Model, version: int, target: Target) -> Iterator[Finding]:
    file = model_file(model.version_dir(version), model.config)
    if file is None or file.suffix != ".onnx" or not exists(file):
        return
    facts, errors = read_graph(file)
    yield from (replace(finding, path=str(file)) for finding in errors)
    if facts is not None:
        too_new = target_findings(facts.opset, facts.ir_version, target)
        yield from (replace(finding, path=str(file)) for finding in too_new)
        if model.config is not None and model.text is not None:
            findings = graph_findings(model.config, facts.signature, facts.spare, facts.unknown_ranks, target)
            yield from model.text.placed(findings)
